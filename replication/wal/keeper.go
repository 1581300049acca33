package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication/disk"
)

const (
	markerInterval = time.Second            // how late the marker is synced at most
	spaceInterval  = 200 * time.Millisecond // how often a full disk is looked at again
	prewriteStep   = 1 << 20
	spareNumbers   = 1 << 63 // numbers of spare files that were never a segment
)

// spare is a file that can become a segment.
type spare struct {
	file    disk.File
	name    string
	size    int64
	written bool // its blocks have been written: fdatasync is cheaper
}

// pool is the spare files.
type pool struct {
	mu      sync.Mutex
	spares  []*spare
	next    uint64 // number of the next new spare file
	size    int64  // of the next new spare file
	retired []*segment
	away    int // spares being prewritten
}

func (p *pool) init(size int64) { p.next, p.size = spareNumbers, size }

func (p *pool) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spares) + p.away
}

// take removes the first spare that is big enough, prewritten ones first; nil if
// there is none.
func (p *pool) take(size int64) *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, s := range p.spares {
		if s.size >= size && (best < 0 || s.written && !p.spares[best].written) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	s := p.spares[best]
	p.spares = slices.Delete(p.spares, best, best+1)
	return s
}

func (p *pool) put(s *spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spares = append(p.spares, s)
}

// wants tells whether the keeper has something to do, given whether the segment
// in use is filling up.
func (p *pool) wants(filling bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away == 0 && (len(p.spares) == 0 || filling && !p.writtenLocked())
}

func (p *pool) writtenLocked() bool {
	return slices.ContainsFunc(p.spares, func(s *spare) bool { return s.written })
}

// unwritten lends a spare that is to be prewritten; nil when there is one that is
// already. It must be given back.
func (p *pool) unwritten() *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.spares) == 0 || p.writtenLocked() {
		return nil
	}
	s := p.spares[0]
	p.spares = slices.Delete(p.spares, 0, 1)
	p.away++
	return s
}

func (p *pool) back(s *spare) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away--
	p.spares = append(p.spares, s)
}

func (p *pool) close() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.spares {
		errs = append(errs, s.file.Close())
	}
	for _, s := range p.retired {
		errs = append(errs, s.file.Close())
	}
	p.spares, p.retired = nil, nil
	return errs
}

// makeSpare makes a new file of the size that is due, at least need bytes.
func (l *Log) makeSpare(need int64) (*spare, error) {
	l.pool.mu.Lock()
	number, size := l.pool.next, max(l.pool.size, (need+4095)&^4095)
	l.pool.next++
	l.pool.mu.Unlock()
	name := freeName(l.opt.Dir, number)
	f, err := disk.OpenBulk(l.opt.FS, name, true, 0)
	if err != nil {
		return nil, fmt.Errorf("make a spare segment: %w", err)
	}
	if err := f.Allocate(size); err != nil {
		return nil, fmt.Errorf("make a spare segment of %d bytes: %w", size, errors.Join(err, f.Close(), l.opt.FS.Remove(name)))
	}
	l.pool.mu.Lock()
	l.pool.size = max(l.pool.size, min(4*size, l.opt.SegmentBytes))
	l.pool.mu.Unlock()
	return &spare{file: f, name: name, size: size}, nil
}

// retire takes the oldest segments without wanted entries out of the log. Only
// the oldest: what is left must be an unbroken run.
func (l *Log) retire() {
	l.mu.Lock()
	n := 0
	for len(l.salvage.hit) == 0 && n < len(l.segments)-1 && l.segments[n].live == 0 {
		n++
	}
	// Handed over under the same lock: two callers must not change places, or the
	// younger segments would be removed first, and a crash leave a hole in the run.
	l.pool.mu.Lock()
	l.pool.retired = append(l.pool.retired, l.segments[:n]...)
	l.pool.mu.Unlock()
	l.segments = slices.Delete(l.segments, 0, n)
	l.mu.Unlock()
	if n > 0 {
		l.kick()
	}
}

// kick wakes the keeper.
func (l *Log) kick() {
	select {
	case l.kicks <- struct{}{}:
	default:
	}
}

// keep is the keeper goroutine.
func (l *Log) keep() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timer.Stop()
	armed, synced := false, time.Now()
	for {
		if !armed && (l.dirty.Load() || l.full.Load()) {
			armed = true
			timer.Reset(l.patience())
		}
		select {
		case <-l.closing:
			return
		case <-l.kicks:
		case <-timer.C:
			armed = false
		}
		if err := l.tend(); err != nil {
			l.fail(err)
			return
		}
		if l.dirty.Load() && time.Since(synced) >= markerInterval {
			synced = time.Now()
			l.dirty.Store(false)
			if err := l.mark.sync(); err != nil {
				l.fail(err)
				return
			}
		}
	}
}

func (l *Log) patience() time.Duration {
	if l.full.Load() {
		return spaceInterval
	}
	return markerInterval
}

// tend recycles retired segments, sees to it that there is a spare, and watches
// the free space.
func (l *Log) tend() error {
	l.pool.mu.Lock()
	retired := l.pool.retired
	l.pool.retired = nil
	l.pool.mu.Unlock()
	for _, s := range retired {
		if err := l.recycle(s); err != nil {
			return err
		}
	}
	if l.Stats().Segments == 0 {
		return l.checkSpace() // nothing was ever written: stay small
	}
	if l.pool.len() == 0 {
		sp, err := l.makeSpare(0)
		if errors.Is(err, disk.ErrNoSpace) {
			l.starved.Store(true)
			l.setFull(true, err)
			return nil
		}
		if err != nil {
			return err
		}
		l.pool.put(sp)
	}
	l.starved.Store(false)
	if err := l.checkSpace(); err != nil {
		return err
	}
	if l.sparse() != nil && !l.carrying.Swap(true) {
		l.stopped.Go(l.carry)
	}
	return l.prewrite()
}

// checkSpace looks at the free space. That it has a spare segment does not help
// the log if the machines' files can't grow.
func (l *Log) checkSpace() error {
	free, err := l.opt.FS.Free(l.opt.Dir)
	if err != nil {
		return err
	}
	if l.starved.Load() && free >= l.opt.ReserveBytes {
		return nil // a quota, say: only a spare that was made proves that there is space
	}
	l.setFull(free < l.opt.ReserveBytes, fmt.Errorf("%d bytes are free, %d are to be kept", free, l.opt.ReserveBytes))
	return nil
}

func (l *Log) setFull(full bool, why error) {
	if l.full.Swap(full) == full {
		return
	}
	if full {
		l.opt.Log.Warn("the disk is full: proposals are refused until there is space", "dir", l.opt.Dir, "error", why)
	} else {
		l.opt.Log.Info("there is disk space again: proposals are taken", "dir", l.opt.Dir)
	}
}

// recycle makes a retired segment a spare, or removes it.
func (l *Log) recycle(s *segment) error {
	s.take()
	var again *spare
	if s.size < l.opt.SegmentBytes || l.pool.len() >= l.opt.Pool {
		err := s.file.Close()
		if err = errors.Join(err, l.opt.FS.Remove(s.name)); err != nil {
			return fmt.Errorf("remove segment %d: %w", s.head.number, err)
		}
	} else {
		name := freeName(l.opt.Dir, s.head.number)
		if err := l.opt.FS.Rename(s.name, name); err != nil {
			return fmt.Errorf("recycle segment %d: %w", s.head.number, err)
		}
		again = &spare{file: s.file, name: name, size: s.size, written: true}
	}
	// In order, so that a crash can't leave a hole in the run of segments. And before it
	// can be written to: a power cut would give it its old name, with a new header.
	if err := l.opt.FS.SyncDir(l.opt.Dir); err != nil {
		if again != nil {
			err = errors.Join(err, again.file.Close())
		}
		return fmt.Errorf("recycle segment %d: %w", s.head.number, err)
	}
	if again != nil {
		l.pool.put(again)
	}
	return nil
}

// prewrite writes zeros over a spare when the segment in use is filling up and
// none is prewritten. In steps, each synced, so that the log's own syncs never
// wait for more than one.
func (l *Log) prewrite() error {
	if !l.filling.Load() {
		return nil
	}
	sp := l.pool.unwritten()
	if sp == nil {
		return nil
	}
	zero := disk.AlignedBuffer(prewriteStep)
	for off := int64(0); off < sp.size; off += prewriteStep {
		select {
		case <-l.closing:
			l.pool.back(sp)
			return nil
		default:
		}
		n := min(prewriteStep, sp.size-off)
		if _, err := sp.file.WriteAt(zero[:n], off); err != nil {
			l.pool.back(sp)
			return fmt.Errorf("prepare a spare segment: %w", err)
		}
		if err := sp.file.Datasync(); err != nil {
			l.pool.back(sp)
			return fmt.Errorf("prepare a spare segment: %w", err)
		}
	}
	sp.written = true
	l.pool.back(sp)
	return nil
}
