package state

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tree is an open database. It is closed once nobody looks at it any more.
type tree struct {
	db   *pebble.DB
	fs   vfs.FS
	dir  string // the folder that it is in
	path string
	harm *harm
	gone atomic.Bool // its files go with its last user

	mu    sync.Mutex // of what follows
	users int        // with the store itself
	wrote int        // bytes since it was looked whether there is room
}

const (
	pebbleCache    = 16 << 20
	pebbleMemTable = 8 << 20
	pebbleBatch    = 1 << 20
	// pebbleLevels is behind how many files, one above the other, a writer waits for compaction.
	pebbleLevels = 12
)

var pebbleEnd = []byte{'e'} // behind all 'd'

// openTree opens a tree of a folder; is: there must be one, else there must be none. alarm is told
// once it is damaged.
func openTree(fs vfs.FS, dir, path string, is bool, alarm func()) (*tree, error) {
	t := &tree{fs: fs, dir: dir, path: path, users: 1, harm: &harm{seen: make(chan struct{}), alarm: alarm}}
	if err := t.claim(); err != nil {
		return nil, err
	}
	cache := pebble.NewCache(pebbleCache)
	defer cache.Unref()
	o := &pebble.Options{
		FS: fs, Cache: cache, MemTableSize: pebbleMemTable, DisableWAL: true, Logger: quiet{t.harm},
		FormatMajorVersion: pebble.FormatNewest, L0StopWritesThreshold: math.MaxInt, // see commit
		ErrorIfNotExists: is, ErrorIfExists: !is,
		EventListener: &pebble.EventListener{DataCorruption: t.harm.file, BackgroundError: t.harm.background},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	var err error
	if t.db, err = pebble.Open(path, o); err == nil {
		return t, nil
	}
	if damages(err) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil, errors.Join(fmt.Errorf("open an operator's state in %s: %w", path, err), t.release())
}

// damages tells whether an error in opening a tree is about what its files say: not one of
// the system, nor a program's that doesn't know their format.
func damages(err error) bool {
	var system syscall.Errno
	return harms(err) || !errors.As(err, &system) && !strings.Contains(err.Error(), "format major version")
}

func (t *tree) use() *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users++
	return t
}

// done closes the tree with its last user, and returns how that went.
func (t *tree) done() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users--; t.users > 0 {
		return nil
	}
	return errors.Join(t.db.Close(), t.release())
}

// told is an error of the database as others are told it: that the tree is damaged, whatever
// else it says, where that is known by now.
func (t *tree) told(err error) error {
	if err != nil && harms(err) {
		t.harm.note(err)
	}
	if harm := t.harm.err(); harm != nil {
		return harm
	}
	return err
}

// pebbleReader is what a database and a snapshot of it have in common.
type pebbleReader interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

// lookUp reads from the tree, or a snapshot of it.
func (t *tree) lookUp(r pebbleReader, key []byte) (own []byte, is bool, err error) {
	v, closer, err := r.Get(dataKey(key))
	if is = err == nil; errors.Is(err, pebble.ErrNotFound) {
		err = nil
	}
	if err = t.told(err); is {
		own = append(make([]byte, 0, len(v)), v...)
		err = errors.Join(err, closer.Close())
	}
	if err != nil {
		return nil, false, fmt.Errorf("read an operator's state: %w", err)
	}
	return own, is, nil
}

// walk is lookUp of all from from to to.
func (t *tree) walk(r pebbleReader, from, to []byte, f func(key, v []byte) bool) error {
	o := &pebble.IterOptions{LowerBound: dataKey(from), UpperBound: pebbleEnd}
	if to != nil {
		o.UpperBound = dataKey(to)
	}
	i, err := r.NewIter(o)
	if err = t.told(err); err != nil {
		if i != nil {
			_ = i.Close() // nothing was read
		}
		return fmt.Errorf("read an operator's state: %w", err)
	}
	for ok := i.First(); ok; ok = i.Next() {
		key := append([]byte(nil), i.Key()[1:]...)
		v := append([]byte(nil), i.Value()...)
		if !f(key, v) {
			break
		}
	}
	if err := t.told(errors.Join(i.Error(), i.Close())); err != nil {
		return fmt.Errorf("read an operator's state: %w", err)
	}
	return nil
}

// commit writes a batch. Where compaction is far behind it waits, but not for one that can't
// go on because of damage, as Pebble's own writers would.
func (t *tree) commit(b *pebble.Batch) error {
	t.mu.Lock()
	t.wrote += b.Len()
	look := t.wrote > pebbleMemTable/2
	if look {
		t.wrote = 0
	}
	t.mu.Unlock()
	for look && t.harm.err() == nil && t.db.Metrics().Levels[0].Sublevels >= pebbleLevels {
		timer := time.NewTimer(time.Millisecond)
		select {
		case <-timer.C:
		case <-t.harm.seen:
		}
		timer.Stop()
	}
	if err := t.told(nil); err != nil {
		return err
	}
	return t.told(b.Commit(pebble.NoSync))
}

// flush makes last what was written.
func (t *tree) flush() error {
	if err := t.told(nil); err != nil {
		return err
	}
	done, err := t.db.AsyncFlush()
	if err == nil {
		select {
		case <-done:
		case <-t.harm.seen: // it is tried for ever
		}
	}
	return t.told(err)
}

// harm is what is known of damage to a tree.
type harm struct {
	seen  chan struct{} // closed once there is some
	alarm func()

	mu    sync.Mutex
	found error
}

func (h *harm) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.found
}

// note notes the first damage.
func (h *harm) note(err error) {
	h.mu.Lock()
	first := h.found == nil
	if first {
		h.found = fmt.Errorf("%w: %w", ErrDamaged, err)
		close(h.seen)
	}
	h.mu.Unlock()
	if first {
		h.alarm()
	}
}

// file is told of a file that says something else than was written to it, or isn't there.
func (h *harm) file(info pebble.DataCorruptionInfo) {
	h.note(fmt.Errorf("%s: %w", info.Path, info.Details))
}

// background is told of what Pebble's own goroutines meet, and try again.
func (h *harm) background(err error) {
	if harms(err) {
		h.note(err)
	}
}

// harms tells whether an error is about what the files say, or that they aren't there any
// more: nothing that can be tried again.
func harms(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, os.ErrNotExist)
}

// quiet is Pebble's log: it says nothing but what ends the process, a write that failed and
// can't be repeated: the files are then read again from what the disk really has. A tree that
// is damaged, or whose files are gone, ends nothing but itself.
type quiet struct{ harm *harm }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (q quiet) Fatalf(f string, args ...any) {
	for _, a := range args {
		if err, is := a.(error); is && harms(err) {
			q.harm.note(err)
		}
	}
	if q.harm.err() == nil {
		panic(fmt.Sprintf("the state of an operator: "+f, args...))
	}
}
