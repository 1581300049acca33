package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble is a Store in a log-structured merge tree, for state that is bigger than memory.
// Its own log is off: the group's log has every step. Each Apply is one batch, with the
// step in it, and what is lost in a crash is always the newest batches; so the files hold
// the state after some step, and say which. Flush writes what is new: files that were
// written before stay as they are.
//
//	'd' key   a value
//	'm'       epoch u64, seq u64, keys u64, bytes u64, sum u64
//	'n'       the same, then for each step: step u16, keys u64, bytes u64
//
// Versions before wrote no 'n': one that isn't of where the tree stands is counted anew.
//
// A folder holds one tree, tree-N, and the file tree with N: another state as a whole is
// another tree, which takes the place of the old one once it is complete.
//
// Flush and Close are called by any goroutine, the rest as Store says.
type Pebble struct {
	fs  vfs.FS
	dir string

	mu      sync.Mutex // of what follows
	t       *tree
	n       uint64 // the tree's number
	at      standingAt
	flushed uint64
	closed  bool
}

var _ Lasting = (*Pebble)(nil)

// standingAt is what is written with each batch.
type standingAt struct {
	epoch, seq  uint64
	keys, bytes int64
	sum         uint64
	steps       sizes // never changed once it is somewhere
}

// tree is an open database. It is closed once nobody looks at it any more.
type tree struct {
	db    *pebble.DB
	path  string
	mu    sync.Mutex
	users int    // with the store itself
	gone  bool   // its files go with it
	last  string // the folder, which goes as well if there is nothing else in it; "": it stays
	fs    vfs.FS
}

const (
	pebbleCache    = 16 << 20
	pebbleMemTable = 8 << 20
	pebbleBatch    = 1 << 20
	pointerName    = "tree"
)

var (
	pebbleAt    = []byte{'m'}
	pebbleEnd   = []byte{'e'} // behind all 'd'
	pebbleSteps = []byte{'n'}
)

// quiet is Pebble's log: it says nothing but what ends the process, a write that failed
// and can't be repeated: the files are then read again from what the disk really has.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(f string, args ...any) {
	panic(fmt.Sprintf("the state of an operator: "+f, args...))
}

func openTree(fs vfs.FS, path string) (*tree, error) {
	cache := pebble.NewCache(pebbleCache)
	defer cache.Unref()
	o := &pebble.Options{
		FS: fs, Cache: cache, MemTableSize: pebbleMemTable, DisableWAL: true, Logger: quiet{},
		FormatMajorVersion: pebble.FormatNewest,
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(path, o)
	if err != nil {
		if pebble.IsCorruptionError(err) {
			err = errors.Join(ErrDelta, err)
		}
		return nil, fmt.Errorf("open an operator's state in %s: %w", path, err)
	}
	return &tree{db: db, path: path, users: 1, fs: fs}, nil
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
	err := t.db.Close()
	if t.gone {
		err = errors.Join(err, t.fs.RemoveAll(t.path))
	}
	if t.last != "" {
		_ = t.fs.Remove(t.last) // unless there is something new
	}
	return err
}

// OpenPebble opens what a folder holds, which it makes.
func OpenPebble(dir string) (*Pebble, error) { return openPebble(vfs.Default, dir) }

func openPebble(fs vfs.FS, dir string) (*Pebble, error) {
	if err := makeFolder(fs, dir); err != nil {
		return nil, err
	}
	p := &Pebble{fs: fs, dir: dir}
	var err error
	if p.n, err = readPointer(fs, dir); err != nil {
		return nil, err
	}
	if err := p.sweep(); err != nil {
		return nil, err
	}
	if p.t, err = openTree(fs, p.path(p.n)); err != nil {
		return nil, err
	}
	v, closer, err := p.t.db.Get(pebbleAt)
	if errors.Is(err, pebble.ErrNotFound) {
		return p, nil
	}
	if err == nil {
		if p.at, err = parseAt(v); err == nil {
			p.flushed = p.at.seq
			p.at.steps, err = p.t.steps(v)
		}
		err = errors.Join(err, closer.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read an operator's state in %s: %w", dir, err), p.t.done())
	}
	return p, nil
}

func (p *Pebble) path(n uint64) string {
	return p.fs.PathJoin(p.dir, pointerName+"-"+strconv.FormatUint(n, 10))
}

func readPointer(fs vfs.FS, dir string) (uint64, error) {
	f, err := fs.Open(fs.PathJoin(dir, pointerName))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open an operator's state: %w", err)
	}
	b, err := io.ReadAll(f)
	err = errors.Join(err, f.Close())
	if err != nil {
		return 0, fmt.Errorf("open an operator's state: %w", err)
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s in %s says %q", ErrDelta, pointerName, dir, b)
	}
	return n, nil
}

// writePointer makes another tree the folder's.
func writePointer(fs vfs.FS, dir string, n uint64) error {
	name := fs.PathJoin(dir, pointerName)
	f, err := fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(strconv.AppendUint(nil, n, 10))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = fs.Rename(name+".new", name)
	}
	if err != nil {
		return err
	}
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeFolder makes a folder that is still there after a crash.
func makeFolder(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	err := fs.MkdirAll(dir, 0o700)
	for above, n := fs.PathDir(dir), 0; err == nil && n < 2; above, n = fs.PathDir(above), n+1 {
		var d vfs.File
		if d, err = fs.OpenDir(above); err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("make the folder of an operator's state: %w", err)
	}
	return nil
}

// sweep removes what a crash has left of other trees.
func (p *Pebble) sweep() error {
	names, err := p.fs.List(p.dir)
	if err != nil {
		return fmt.Errorf("open an operator's state: %w", err)
	}
	for _, name := range names {
		if ok, _ := filepath.Match(pointerName+"-*", name); ok && p.fs.PathJoin(p.dir, name) != p.path(p.n) {
			err = errors.Join(err, p.fs.RemoveAll(p.fs.PathJoin(p.dir, name)))
		}
	}
	return err
}

func (a standingAt) append() []byte {
	var b []byte
	for _, n := range []uint64{a.epoch, a.seq, uint64(a.keys), uint64(a.bytes), a.sum} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func parseAt(b []byte) (a standingAt, err error) {
	if len(b) != 40 {
		return a, fmt.Errorf("%w: where it stands", ErrDelta)
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return standingAt{n(0), n(1), int64(n(2)), int64(n(3)), n(4), nil}, nil
}

func dataKey(key []byte) []byte { return append(append(make([]byte, 0, len(key)+1), 'd'), key...) }

// pebbleReader is what a database and a snapshot of it have in common.
type pebbleReader interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(o *pebble.IterOptions) (*pebble.Iterator, error)
}

func lookUp(r pebbleReader, key []byte) ([]byte, bool, error) {
	v, closer, err := r.Get(dataKey(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read an operator's state: %w", err)
	}
	own := append(make([]byte, 0, len(v)), v...)
	return own, true, closer.Close()
}

func walk(r pebbleReader, from, to []byte, f func(key, v []byte) bool) error {
	o := &pebble.IterOptions{LowerBound: dataKey(from), UpperBound: pebbleEnd}
	if to != nil {
		o.UpperBound = dataKey(to)
	}
	i, err := r.NewIter(o)
	if err != nil {
		return fmt.Errorf("read an operator's state: %w", err)
	}
	for ok := i.First(); ok; ok = i.Next() {
		key := append([]byte(nil), i.Key()[1:]...)
		v := append([]byte(nil), i.Value()...)
		if !f(key, v) {
			break
		}
	}
	if err := errors.Join(i.Error(), i.Close()); err != nil {
		return fmt.Errorf("read an operator's state: %w", err)
	}
	return nil
}

func (p *Pebble) use() (*tree, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	return p.t.use(), nil
}

// Get implements Reader.
func (p *Pebble) Get(key []byte) ([]byte, bool, error) {
	t, err := p.use()
	if err != nil {
		return nil, false, err
	}
	v, ok, err := lookUp(t.db, key)
	return v, ok, errors.Join(err, t.done())
}

// Scan implements Reader. It shows one state, whatever is applied meanwhile.
func (p *Pebble) Scan(from, to []byte, f func(key, v []byte) bool) error {
	t, err := p.use()
	if err != nil {
		return err
	}
	return errors.Join(walk(t.db, from, to, f), t.done())
}

// Apply implements Store.
func (p *Pebble) Apply(delta []byte, seq uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	b := p.t.db.NewBatch()
	at, err := fill(b, p.t.db, p.at, delta)
	at.seq = seq
	if err == nil {
		err = errors.Join(at.put(b), b.Commit(pebble.NoSync))
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("change an operator's state: %w", err)
	}
	p.at = at
	return nil
}

// fill puts a delta into a batch and returns where the state stands then.
func fill(b *pebble.Batch, r pebbleReader, at standingAt, delta []byte) (standingAt, error) {
	at.steps = slices.Clone(at.steps)
	err := EachChange(delta, func(key, v []byte, deleted bool) error {
		old, had, err := lookUp(r, key)
		if err != nil {
			return err
		}
		if had {
			at.keys--
			at.bytes -= int64(len(key) + len(old))
			at.sum -= pairSum(key, old)
			at.steps.less(key, len(old))
		}
		if deleted {
			return b.Delete(dataKey(key), nil)
		}
		at.keys++
		at.bytes += int64(len(key) + len(v))
		at.sum += pairSum(key, v)
		at.steps.more(key, len(v))
		return b.Set(dataKey(key), v, nil)
	})
	return at, err
}

// Seq implements Store.
func (p *Pebble) Seq() uint64 { return p.standing().seq }

// Epoch implements Lasting.
func (p *Pebble) Epoch() uint64 { return p.standing().epoch }

// Sum implements Store.
func (p *Pebble) Sum() uint64 { return p.standing().sum }

// Size implements Store.
func (p *Pebble) Size() (keys, bytes int64) {
	at := p.standing()
	return at.keys, at.bytes
}

// Steps implements Store.
func (p *Pebble) Steps() []StepSize { return p.standing().steps.there() }

func (p *Pebble) standing() standingAt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// Flushed implements Lasting.
func (p *Pebble) Flushed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flushed
}

// Snapshot implements Store; it takes no time, whatever the size.
func (p *Pebble) Snapshot() (Snapshot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	return &pebbleSnapshot{s: p.t.db.NewSnapshot(), t: p.t.use(), seq: p.at.seq}, nil
}

type pebbleSnapshot struct {
	s   *pebble.Snapshot
	t   *tree
	seq uint64
}

func (s *pebbleSnapshot) Get(key []byte) ([]byte, bool, error) { return lookUp(s.s, key) }
func (s *pebbleSnapshot) Seq() uint64                          { return s.seq }
func (s *pebbleSnapshot) Close() error                         { return errors.Join(s.s.Close(), s.t.done()) }

func (s *pebbleSnapshot) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return walk(s.s, from, to, f)
}

// Replace implements Store.
func (p *Pebble) Replace(from Reader, seq uint64) error { return p.Begin(p.Epoch(), from, seq) }

// Begin implements Lasting: in another tree, which is durable before the old one goes.
func (p *Pebble) Begin(epoch uint64, from Reader, seq uint64) error {
	return p.begin(from, func() (uint64, uint64, error) { return epoch, seq, nil })
}

// begin is Begin, where the epoch and the step are known once from has been read.
func (p *Pebble) begin(from Reader, of func() (epoch, seq uint64, err error)) error {
	p.mu.Lock()
	n := p.n + 1
	p.mu.Unlock()
	if err := p.fs.RemoveAll(p.path(n)); err != nil {
		return fmt.Errorf("begin an operator's state: %w", err)
	}
	t, err := openTree(p.fs, p.path(n))
	if err != nil {
		return err
	}
	at, err := t.load(from, of)
	return p.swap(t, n, at, err)
}

// swap makes a tree that is complete the folder's, instead of the one there is.
func (p *Pebble) swap(t *tree, n uint64, at standingAt, err error) error {
	if err == nil {
		err = t.db.Flush()
	}
	if err == nil {
		err = writePointer(p.fs, p.dir, n)
	}
	if err != nil {
		t.gone = true
		return fmt.Errorf("begin an operator's state: %w", errors.Join(err, t.done()))
	}
	p.mu.Lock()
	old := p.t
	p.t, p.n, p.at, p.flushed = t, n, at, at.seq
	p.mu.Unlock()
	old.mu.Lock()
	old.gone = true
	old.mu.Unlock()
	return old.done()
}

// load fills a tree that is empty.
func (t *tree) load(from Reader, of func() (epoch, seq uint64, err error)) (at standingAt, err error) {
	b := t.db.NewBatch()
	var failed error
	commit := func() {
		if b.Len() > 0 {
			failed = errors.Join(failed, b.Commit(pebble.NoSync))
		}
		failed = errors.Join(failed, b.Close())
	}
	err = from.Scan(nil, nil, func(key, v []byte) bool {
		at.keys++
		at.bytes += int64(len(key) + len(v))
		at.sum += pairSum(key, v)
		at.steps.more(key, len(v))
		failed = errors.Join(failed, b.Set(dataKey(key), v, nil))
		if b.Len() > pebbleBatch && failed == nil {
			commit()
			b = t.db.NewBatch()
		}
		return failed == nil
	})
	if err == nil {
		at.epoch, at.seq, err = of()
	}
	failed = errors.Join(failed, at.put(b))
	commit()
	return at, errors.Join(err, failed)
}

// Flush implements Store.
func (p *Pebble) Flush() error {
	p.mu.Lock()
	if p.closed || p.flushed == p.at.seq && p.at.epoch > 0 {
		p.mu.Unlock()
		return nil
	}
	t, seq := p.t.use(), p.at.seq
	p.mu.Unlock()
	err := errors.Join(t.db.Flush(), t.done())
	if err != nil {
		return fmt.Errorf("write an operator's state to %s: %w", p.dir, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.t == t {
		p.flushed = max(p.flushed, seq)
	}
	return nil
}

// Close makes everything last and ends the store.
func (p *Pebble) Close() error {
	err := p.Flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return err
	}
	p.closed = true
	return errors.Join(err, p.t.done())
}

// Remove takes the files away; the store is of no use afterwards.
func (p *Pebble) Remove() error { return p.remove("") }

// removeFolder is Remove, and takes the folder with all that is in it away: the tree once nobody
// looks at it any more, since its own goroutines need its files until then.
func (p *Pebble) removeFolder() error {
	names, err := p.fs.List(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	p.mu.Lock()
	tree := p.path(p.n)
	p.mu.Unlock()
	for _, name := range names {
		if path := p.fs.PathJoin(p.dir, name); path != tree {
			err = errors.Join(err, p.fs.RemoveAll(path))
		}
	}
	return errors.Join(err, p.remove(p.dir))
}

func (p *Pebble) remove(folder string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.t.mu.Lock()
	p.t.gone, p.t.last = true, folder
	p.t.mu.Unlock()
	err := p.fs.Remove(p.fs.PathJoin(p.dir, pointerName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.t.done())
}
