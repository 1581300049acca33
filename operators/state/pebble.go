package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
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
// another tree, which takes the place of the old one once it is complete. A folder without the
// file holds no state: it is written with the first Flush at the latest.
//
// A tree is damaged once a file of it was found to say something else than was written to it, or
// to be gone, by whoever reads it, be it Pebble's own compaction. From then on all that could
// give what is wrong, or lose more, fails with an error that Is ErrDamaged and names the file.
//
// Flush and Close are called by any goroutine, the rest as Store says.
type Pebble struct {
	fs    vfs.FS
	dir   string
	alarm atomic.Pointer[func()]

	mu      sync.Mutex // of what follows
	t       *tree
	n       uint64 // the tree's number
	pointed bool   // the file says so
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

const pointerName = "tree"

var (
	pebbleAt    = []byte{'m'}
	pebbleSteps = []byte{'n'}
)

// OpenPebble opens what a folder holds, which it makes.
func OpenPebble(dir string) (*Pebble, error) { return openPebble(vfs.Default, dir) }

func openPebble(fs vfs.FS, dir string) (*Pebble, error) {
	dir = fs.PathJoin(dir)
	if err := makeFolder(fs, dir); err != nil {
		return nil, err
	}
	p := &Pebble{fs: fs, dir: dir}
	var err error
	if p.n, p.pointed, err = readPointer(fs, dir); err != nil {
		return nil, err
	}
	if above := treeAbove(p.n); !p.pointed {
		p.n = above
	} else if _, err := fs.Stat(p.path(p.n)); errors.Is(err, os.ErrNotExist) { // what there is stays, to be looked at
		return nil, fmt.Errorf("%w: %s in %s says %d, and there is none", ErrDamaged, pointerName, dir, p.n)
	}
	if err := removeTrees(fs, dir, p.path(p.n)); err != nil { // what a crash has left of others
		return nil, err
	}
	if p.t, err = p.openTree(p.n, p.pointed); err != nil {
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
	if err = p.t.told(err); err != nil {
		return nil, errors.Join(fmt.Errorf("read an operator's state in %s: %w", dir, err), p.t.done())
	}
	return p, nil
}

func (p *Pebble) openTree(n uint64, is bool) (*tree, error) {
	return openTree(p.fs, p.dir, p.path(n), is, func() {
		if f := p.alarm.Load(); f != nil {
			(*f)()
		}
	})
}

// Damaged returns what is known of damage to the files, nil: nothing. The error Is ErrDamaged.
func (p *Pebble) Damaged() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.t.harm.err()
}

// Alarm has f called once the files are found to be damaged, now if they are. It is called by
// whoever finds out, and must neither wait nor use the store.
func (p *Pebble) Alarm(f func()) {
	p.alarm.Store(&f)
	if p.Damaged() != nil {
		f()
	}
}

func (p *Pebble) path(n uint64) string {
	return treePath(p.fs, p.dir, n)
}

func treePath(fs vfs.FS, dir string, n uint64) string {
	return fs.PathJoin(dir, pointerName+"-"+strconv.FormatUint(n, 10))
}

func readPointer(fs vfs.FS, dir string) (n uint64, is bool, err error) {
	f, err := fs.Open(fs.PathJoin(dir, pointerName))
	if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("open an operator's state: %w", err)
	}
	b, err := io.ReadAll(f)
	err = errors.Join(err, f.Close())
	if err != nil {
		return 0, false, fmt.Errorf("open an operator's state: %w", err)
	}
	if n, err = strconv.ParseUint(string(b), 10, 64); err != nil {
		return 0, false, fmt.Errorf("%w: %s in %s says %q", ErrDamaged, pointerName, dir, b)
	}
	return n, true, nil
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

func (a standingAt) append() []byte {
	var b []byte
	for _, n := range []uint64{a.epoch, a.seq, uint64(a.keys), uint64(a.bytes), a.sum} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

func parseAt(b []byte) (a standingAt, err error) {
	if len(b) != 40 {
		return a, fmt.Errorf("%w: where it stands", ErrDamaged)
	}
	n := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return standingAt{n(0), n(1), int64(n(2)), int64(n(3)), n(4), nil}, nil
}

func dataKey(key []byte) []byte { return append(append(make([]byte, 0, len(key)+1), 'd'), key...) }

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
	v, ok, err := t.lookUp(t.db, key)
	return v, ok, errors.Join(err, t.done())
}

// Scan implements Reader. It shows one state, whatever is applied meanwhile.
func (p *Pebble) Scan(from, to []byte, f func(key, v []byte) bool) error {
	t, err := p.use()
	if err != nil {
		return err
	}
	return errors.Join(t.walk(t.db, from, to, f), t.done())
}

// Apply implements Store.
func (p *Pebble) Apply(delta []byte, seq uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	b := p.t.db.NewBatch()
	at, err := p.t.fill(b, p.at, delta)
	at.seq = seq
	if err == nil {
		err = errors.Join(at.put(b), p.t.commit(b))
	}
	if err = errors.Join(err, b.Close()); err != nil {
		return fmt.Errorf("change an operator's state: %w", err)
	}
	p.at = at
	return nil
}

// fill puts a delta into a batch and returns where the state stands then.
func (t *tree) fill(b *pebble.Batch, at standingAt, delta []byte) (standingAt, error) {
	at.steps = slices.Clone(at.steps)
	err := EachChange(delta, func(key, v []byte, deleted bool) error {
		old, had, err := t.lookUp(t.db, key)
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
	if err := p.t.told(nil); err != nil {
		return nil, fmt.Errorf("look at an operator's state: %w", err)
	}
	return &pebbleSnapshot{s: p.t.db.NewSnapshot(), t: p.t.use(), seq: p.at.seq}, nil
}

type pebbleSnapshot struct {
	s   *pebble.Snapshot
	t   *tree
	seq uint64
}

func (s *pebbleSnapshot) Get(key []byte) ([]byte, bool, error) { return s.t.lookUp(s.s, key) }
func (s *pebbleSnapshot) Seq() uint64                          { return s.seq }
func (s *pebbleSnapshot) Close() error                         { return errors.Join(s.s.Close(), s.t.done()) }

func (s *pebbleSnapshot) Scan(from, to []byte, f func(key, v []byte) bool) error {
	return s.t.walk(s.s, from, to, f)
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
	n := treeAbove(p.n)
	p.mu.Unlock()
	t, err := p.openTree(n, false)
	if err != nil {
		return err
	}
	at, err := t.load(from, of)
	return p.swap(t, n, at, err)
}

// swap makes a tree that is complete the folder's, instead of the one there is.
func (p *Pebble) swap(t *tree, n uint64, at standingAt, err error) error {
	if err == nil {
		err = t.flush()
	}
	if err == nil {
		err = writePointer(p.fs, p.dir, n)
	}
	if err != nil {
		t.gone.Store(true)
		return fmt.Errorf("begin an operator's state: %w", errors.Join(err, t.done()))
	}
	p.mu.Lock()
	old := p.t
	p.t, p.n, p.pointed, p.at, p.flushed = t, n, true, at, at.seq
	p.mu.Unlock()
	old.gone.Store(true)
	return old.done()
}

// load fills a tree that is empty.
func (t *tree) load(from Reader, of func() (epoch, seq uint64, err error)) (at standingAt, err error) {
	b := t.db.NewBatch()
	var failed error
	commit := func() {
		if b.Len() > 0 {
			failed = errors.Join(failed, t.commit(b))
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
	if p.closed || p.flushed == p.at.seq && p.at.epoch > 0 && p.t.harm.err() == nil {
		p.mu.Unlock()
		return nil
	}
	t, n, seq, pointed := p.t.use(), p.n, p.at.seq, p.pointed
	p.mu.Unlock()
	err := t.flush()
	if err == nil && !pointed {
		err = writePointer(p.fs, p.dir, n)
	}
	if err = errors.Join(err, t.done()); err != nil {
		return fmt.Errorf("write an operator's state to %s: %w", p.dir, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.t == t {
		p.flushed, p.pointed = max(p.flushed, seq), true
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

// Remove takes the files away; the store is of no use afterwards. The tree goes once nobody looks
// at it any more.
func (p *Pebble) Remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.t.gone.Store(true)
	err := p.fs.Remove(p.fs.PathJoin(p.dir, pointerName))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.t.done())
}
