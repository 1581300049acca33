package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Lasting is a Store in files, of an epoch.
type Lasting interface {
	Store
	// Epoch returns the epoch that the state is of, 0 where there is none.
	Epoch() uint64
	// Begin makes the state that of an epoch.
	Begin(epoch uint64, from Reader, seq uint64) error
	// Flushed returns the step up to which the files hold everything.
	Flushed() uint64
	// Remove takes the files away; the store is of no use afterwards.
	Remove() error
}

var (
	_ Lasting = (*Journal)(nil)
	_ Lasting = (*Durable)(nil)
)

// Backend says where a state is.
type Backend uint8

// The backends. What a state is doesn't depend on where.
const (
	AutoBackend   Backend = iota // in memory, until it is bigger than AutoBytes
	MemoryBackend                // in memory, with a Journal
	PebbleBackend                // in files, with a cache
)

// AutoBytes is how big a state may become in memory where the backend is chosen by size.
const AutoBytes = 64 << 20

// Durable is what an operator keeps on one node, wherever that is, and what has changed
// since it was last given to others. Use, which may move it, Apply, Begin, Replace and
// Close are called by one goroutine, the rest by any number.
type Durable struct {
	dir     string
	at      atomic.Pointer[Lasting]
	changed atomic.Pointer[Changed]
	alarm   atomic.Pointer[func()]
	above   int64 // bytes above which it goes to Pebble; 0: it stays where it is
}

// Open opens what a folder holds, which it makes, where it is. The error Is ErrDamaged where
// what it holds can't be believed.
func Open(dir string) (*Durable, error) {
	d := &Durable{dir: dir}
	if _, err := os.Stat(filepath.Join(dir, pointerName)); err == nil {
		p, err := OpenPebble(dir)
		if err != nil {
			return nil, err
		}
		// What a crash left of the one before; this one was complete first.
		if err := os.Remove(journalName(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(err, p.Close())
		}
		d.set(p)
		return d, nil
	}
	j, err := OpenJournal(dir)
	if errors.Is(err, ErrDelta) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	d.set(j)
	return d, nil
}

func (d *Durable) set(l Lasting) {
	d.at.Store(&l)
	if p, is := l.(*Pebble); is && d.alarm.Load() != nil {
		p.Alarm(*d.alarm.Load())
	}
}

// Damaged returns what is known of damage to the files, as Pebble's; of a state in memory it is
// known when it is opened.
func (d *Durable) Damaged() error {
	if p, is := d.now().(*Pebble); is {
		return p.Damaged()
	}
	return nil
}

// Alarm has f called once the files are found to be damaged, as Pebble's.
func (d *Durable) Alarm(f func()) {
	d.alarm.Store(&f)
	if p, is := d.now().(*Pebble); is {
		p.Alarm(f)
	}
}

func (d *Durable) now() Lasting { return *d.at.Load() }

// Use moves the state to a backend, and with AutoBackend moves it once it has grown. above
// is AutoBytes, or another figure in tests.
func (d *Durable) Use(b Backend, above int64) error {
	d.above = 0
	switch b {
	case PebbleBackend:
		return d.toPebble()
	case MemoryBackend:
		return d.toMemory()
	}
	d.above = above
	return d.cross()
}

// cross moves a state that has grown, between two steps.
func (d *Durable) cross() error {
	if _, bytes := d.Size(); d.above == 0 || bytes <= d.above {
		return nil
	}
	return d.toPebble()
}

// InFiles tells whether the state is in Pebble.
func (d *Durable) InFiles() bool {
	_, is := d.now().(*Pebble)
	return is
}

func (d *Durable) toPebble() error {
	if d.InFiles() {
		return nil
	}
	p, err := OpenPebble(d.dir)
	if err != nil {
		return err
	}
	return d.move(p)
}

func (d *Durable) toMemory() error {
	if !d.InFiles() {
		return nil
	}
	if err := os.Remove(journalName(d.dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("move an operator's state to memory: %w", err)
	}
	j, err := OpenJournal(d.dir)
	if err != nil {
		return err
	}
	return d.move(j)
}

// move makes another store hold the state; the old one goes once the new one lasts.
func (d *Durable) move(to Lasting) error {
	old := d.now()
	s, err := old.Snapshot()
	if err != nil {
		return errors.Join(err, to.Remove())
	}
	err = to.Begin(old.Epoch(), s, s.Seq())
	if err = errors.Join(err, s.Close()); err == nil {
		err = to.Flush()
	}
	if err != nil {
		return fmt.Errorf("move an operator's state: %w", errors.Join(err, to.Remove()))
	}
	d.set(to)
	return old.Remove()
}

// Get implements Reader.
func (d *Durable) Get(key []byte) ([]byte, bool, error) { return d.now().Get(key) }

// Scan implements Reader.
func (d *Durable) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return d.now().Scan(from, to, f)
}

// First is the look-up of the package's function of that name.
func (d *Durable) First(from, to []byte) (key, v []byte, ok bool, err error) {
	return First(d.now(), from, to)
}

// Seq implements Store.
func (d *Durable) Seq() uint64 { return d.now().Seq() }

// Size implements Store.
func (d *Durable) Size() (keys, bytes int64) { return d.now().Size() }

// Steps implements Store.
func (d *Durable) Steps() []StepSize { return d.now().Steps() }

// Sum implements Store.
func (d *Durable) Sum() uint64 { return d.now().Sum() }

// Snapshot implements Store.
func (d *Durable) Snapshot() (Snapshot, error) { return d.now().Snapshot() }

// Epoch implements Lasting.
func (d *Durable) Epoch() uint64 { return d.now().Epoch() }

// Flushed implements Lasting.
func (d *Durable) Flushed() uint64 { return d.now().Flushed() }

// Flush implements Store.
func (d *Durable) Flush() error { return d.now().Flush() }

// Close implements Store.
func (d *Durable) Close() error { return d.now().Close() }

// Remove implements Lasting; the folder goes as well, with the last who looks at it.
func (d *Durable) Remove() error { return errors.Join(d.now().Remove(), RemoveFolder(d.dir)) }

// Apply implements Store.
func (d *Durable) Apply(delta []byte, seq uint64) error {
	if c := d.changed.Load(); c != nil { // before a snapshot can have it
		if err := c.Note(delta, seq); err != nil {
			return err
		}
	}
	if err := d.now().Apply(delta, seq); err != nil {
		return err
	}
	if d.above == 0 || d.InFiles() {
		return nil
	}
	return d.cross()
}

// Begin implements Lasting.
func (d *Durable) Begin(epoch uint64, from Reader, seq uint64) error {
	if c := d.changed.Load(); c != nil {
		c.forget(seq)
	}
	return d.now().Begin(epoch, from, seq)
}

// Retain makes the state that of an epoch, with what fate says stays of the state that there
// is. fate also says up to which key, if any, all keys share its answer. In files it takes
// no room for what stays, which the new state shares with the old one by hard links, and
// only what goes is looked at.
func (d *Durable) Retain(epoch, seq uint64, fate func(key []byte) (stays bool, until []byte)) error {
	p, is := d.now().(*Pebble)
	if !is {
		return d.Begin(epoch, retained{d.now(), fate}, seq)
	}
	if c := d.changed.Load(); c != nil {
		c.forget(seq)
	}
	return p.Retain(epoch, seq, fate)
}

// retained is what stays of a state.
type retained struct {
	Reader
	fate func(key []byte) (stays bool, until []byte)
}

func (r retained) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return r.Reader.Scan(from, to, func(key, v []byte) bool {
		stays, _ := r.fate(key)
		return !stays || f(key, v)
	})
}

// Clone makes a folder that isn't there yet hold the state as it is now, for another
// Durable. In files it takes no room and hardly any time, by hard links.
func (d *Durable) Clone(dir string) error {
	if p, is := d.now().(*Pebble); is {
		return p.clone(dir)
	}
	s, err := d.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	j, err := OpenJournal(dir)
	if err != nil {
		return err
	}
	return errors.Join(j.Begin(d.Epoch(), s, s.Seq()), j.Close())
}

// Replace implements Store.
func (d *Durable) Replace(from Reader, seq uint64) error { return d.Begin(d.Epoch(), from, seq) }

// Track notes which keys change from now on, in at most as many bytes; 0: none any more.
func (d *Durable) Track(bytesMax int) {
	if bytesMax == 0 {
		d.changed.Store(nil)
		return
	}
	if d.changed.Load() == nil {
		d.changed.Store(NewChanged(d.Seq(), bytesMax))
	}
}

// Forget forgets what has changed up to a step.
func (d *Durable) Forget(oldest uint64) {
	if c := d.changed.Load(); c != nil {
		c.trim(oldest)
	}
}

// Since returns a snapshot, and the keys in order that have changed behind a step; known
// is false when that isn't known any more. What changed up to a step oldest, which nobody
// will ask for, is forgotten.
func (d *Durable) Since(seq, oldest uint64) (s Snapshot, keys []string, known bool, err error) {
	if s, err = d.Snapshot(); err != nil {
		return nil, nil, false, err
	}
	if c := d.changed.Load(); c != nil {
		keys, known = c.since(seq, oldest)
	}
	return s, keys, known, nil
}
