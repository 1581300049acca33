package wal

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heraldmq/herald/replication/disk"
)

// ErrClosed is returned for stores after Close.
var ErrClosed = errors.New("the log is closed")

// Options is what a log is opened with. Dir, Node and Fatal are required.
type Options struct {
	Dir  string
	Node string  // segments of another node are refused
	FS   disk.FS // default: the operating system

	FirstBytes   int64 // size of the first segment; default 1 MiB
	SegmentBytes int64 // size segments grow to, fourfold each; default 64 MiB
	Pool         int   // spare segments kept, at least 1; default 4
	TailBytes    int64 // entries kept in memory; default 64 MiB
	ReserveBytes int64 // free space below which NoSpace reports true; default 16 MiB

	// Salvage opens a log with damaged records: see Log.Damage.
	Salvage bool

	// Deadline is how long a write may take before Fatal is called with
	// disk.ErrHung; 0 is for ever.
	Deadline time.Duration
	// A write that takes longer than Slow is told to Slowed by 1, and by -1 once it has
	// come back. Slowed may be nil.
	Slow   time.Duration
	Slowed func(by int)
	// Fatal is called at the first failed or hung write. The log takes no more
	// writes after that; reads go on. It may be called on any goroutine.
	Fatal func(error)
	Log   *slog.Logger
	// Synced is called after each batch, with its entries, its bytes and how long
	// the sync took, on the goroutine of whoever wrote it. May be nil.
	Synced func(entries int, bytes int64, took time.Duration)
}

func (o Options) withDefaults() Options {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.SegmentBytes, 64<<20)
	def(&o.FirstBytes, 1<<20)
	def(&o.TailBytes, 64<<20)
	def(&o.ReserveBytes, 16<<20)
	o.FirstBytes = min(o.FirstBytes, o.SegmentBytes)
	if o.Pool == 0 {
		o.Pool = 4
	}
	if o.FS == nil {
		o.FS = disk.OS{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Log is a node's write-ahead log.
type Log struct {
	// Set at construction.
	opt  Options
	node uint64
	mark *marker

	// mu guards the index. It is never held during I/O.
	mu        sync.RWMutex
	groups    map[uint32]*Group
	segments  []*segment // live, oldest first; the last one is written to
	tailBytes int64
	salvage   salvage

	queueMu sync.Mutex
	idle    sync.Cond  // of queueMu: writing became false
	queue   []*request // to be stored, oldest first
	writing bool       // somebody has the writer's role
	failed  error      // why nothing is written any more

	writer
	pool pool

	fatal    sync.Once
	dirty    atomic.Bool // the marker has unsynced writes
	filling  atomic.Bool // the segment in use is more than a quarter full
	full     atomic.Bool // see NoSpace
	starved  atomic.Bool // a spare could not be made
	carrying atomic.Bool // there is a goroutine that carries entries forward

	oneCarries sync.Mutex   // held while entries of a group are carried
	looked     atomic.Int64 // when CheckSpace asked last, ns since 1970
	kicks      chan struct{}
	closing    chan struct{}
	stopped    sync.WaitGroup
	released   sync.Once
}

// writer is owned by whoever has the writer's role, see write.go.
type writer struct {
	end   position // where the next batch goes
	head  []byte   // segment header to be written before the next batch; nil if it is
	named bool     // the last segment's name is not durable yet
	out   output
	plan  []planned
}

// Stats is the log's state for monitoring.
type Stats struct {
	Segments  int   // live
	Bytes     int64 // of live segments
	Spare     int
	TailBytes int64
}

// Open opens or makes the log in a directory, which must exist and be locked by
// the caller. A write torn by a crash is cut off; other damage is a
// *disk.CorruptError; a log that a newer version wrote a *disk.NewerError, and is left as
// it is.
func Open(o Options) (*Log, error) {
	l := &Log{
		opt:     o.withDefaults(),
		groups:  map[uint32]*Group{},
		kicks:   make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	l.idle.L = &l.queueMu
	h := fnv.New64a()
	h.Write([]byte(o.Node))
	l.node = h.Sum64()
	l.pool.init(l.opt.FirstBytes)
	if err := l.recover(); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("open the write-ahead log %s: %w", o.Dir, err)
	}
	if err := l.checkSpace(); err != nil {
		l.closeFiles()
		return nil, err
	}
	l.stopped.Go(l.keep)
	return l, nil
}

// Group returns a group's log, empty if there is nothing of it.
func (l *Log) Group(id uint32) *Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.groupLocked(id)
}

func (l *Log) groupLocked(id uint32) *Group {
	g := l.groups[id]
	if g == nil {
		g = &Group{log: l, id: id}
		l.groups[id] = g
	}
	return g
}

// NoSpace tells that the disk is (nearly) full: there is no spare segment and
// none can be made, or the free space is below the reserve. Stores still work
// until the segment in use is full. It becomes false by itself.
func (l *Log) NoSpace() bool { return l.full.Load() }

// spaceEvery is how often CheckSpace really asks.
const spaceEvery = 100 * time.Millisecond

// CheckSpace brings NoSpace up to date. It asks the file system at most every
// 100 ms; the log itself asks when it is written to.
func (l *Log) CheckSpace() {
	now := time.Now().UnixNano()
	if last := l.looked.Load(); now-last < int64(spaceEvery) || !l.looked.CompareAndSwap(last, now) {
		return
	}
	if err := l.checkSpace(); err != nil {
		l.opt.Log.Warn("the free space is not known", "error", err)
	}
}

// Stats returns the log's state.
func (l *Log) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := Stats{Segments: len(l.segments), TailBytes: l.tailBytes, Spare: l.pool.len()}
	for _, seg := range l.segments {
		s.Bytes += seg.size
	}
	return s
}

// Close syncs the marker and closes the files. Stores that wait end with
// ErrClosed; the one being written is waited for.
func (l *Log) Close() error {
	l.queueMu.Lock()
	if l.failed == nil {
		l.failed = ErrClosed
	}
	// Invariant: when nobody writes, the queue is empty. Who writes sees failed
	// and ends what waits.
	for l.writing {
		l.idle.Wait()
	}
	l.queueMu.Unlock()

	l.released.Do(func() { close(l.closing) })
	l.stopped.Wait()
	var err error
	if l.dirty.Swap(false) {
		err = l.mark.sync()
	}
	return errors.Join(err, l.closeFiles())
}

func (l *Log) closeFiles() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, s := range l.segments {
		s.take()
		errs = append(errs, s.file.Close())
	}
	l.segments = nil
	if l.mark != nil {
		errs = append(errs, l.mark.file.Close())
		l.mark = nil
	}
	return errors.Join(append(errs, l.pool.close()...)...)
}

// fail ends all writing.
func (l *Log) fail(err error) {
	l.queueMu.Lock()
	if l.failed == nil {
		l.failed = err
	}
	l.queueMu.Unlock()
	l.fatal.Do(func() {
		l.opt.Log.Error("the write-ahead log has failed", "error", err)
		l.opt.Fatal(err)
	})
}

func (l *Log) late() {
	err := fmt.Errorf("write to the log in %s: %w (deadline %s)", l.opt.Dir, disk.ErrHung, l.opt.Deadline)
	if l.full.Load() {
		err = fmt.Errorf("write to the log in %s: waited %s for space: %w", l.opt.Dir, l.opt.Deadline, disk.ErrNoSpace)
	}
	l.fail(err)
}
