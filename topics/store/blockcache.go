package store

import (
	"container/list"
	"errors"
	"sync"

	"github.com/heraldmq/herald/topics/datafile"
)

// blockCache holds what was read of data files lately: indexes of runs and
// whole runs. It is bounded in bytes; the least recently used go first.
type blockCache struct {
	max int64

	mu    sync.Mutex
	bytes int64
	items map[cacheKey]*list.Element
	order list.List // of *cached, most recent first
}

type cacheKey struct {
	file  uint64 // dataFile.id
	run   int32
	chunk bool
}

type cached struct {
	key   cacheKey
	value any
	bytes int64
}

func newBlockCache(max int64) *blockCache {
	return &blockCache{max: max, items: make(map[cacheKey]*list.Element)}
}

func (c *blockCache) get(k cacheKey) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[k]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).value
}

func (c *blockCache) put(k cacheKey, v any, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.items[k] != nil {
		return
	}
	c.items[k] = c.order.PushFront(&cached{key: k, value: v, bytes: bytes})
	c.bytes += bytes
	for c.bytes > c.max && c.order.Len() > 1 {
		last := c.order.Back()
		old := c.order.Remove(last).(*cached)
		delete(c.items, old.key)
		c.bytes -= old.bytes
	}
}

// indexed is the index of a run, or why it can't be had.
type indexed struct {
	block *datafile.Block
	err   error
}

// loadBlock returns the index of a run, from the disk if need be. A damaged
// index is made again from the records if they are whole; the caller holds the
// file.
func (s *Store) loadBlock(r *run) indexed {
	if v := s.cache.get(r.key(false)); v != nil {
		return v.(indexed)
	}
	in := r.file.Runs[r.i]
	block, err := r.file.Block(&in)
	var damage *datafile.CorruptError
	if errors.As(err, &damage) {
		s.o.Log.Error("data file is damaged", "err", err)
		s.ReportDamage(err)
		if again, e := r.file.Rebuild(&in); e == nil {
			block, err = again, nil
		}
	}
	v := indexed{block: block, err: err}
	switch {
	case err == nil:
		s.cache.put(r.key(false), v, block.Bytes())
	case damage != nil:
		s.cache.put(r.key(false), v, 256)
	}
	return v
}

// loadChunk returns the records of a run; the caller holds the file.
func (s *Store) loadChunk(r *run, block *datafile.Block) (*datafile.Chunk, error) {
	if v := s.cache.get(r.key(true)); v != nil {
		return v.(*datafile.Chunk), nil
	}
	c, err := r.file.Chunk(&r.file.Runs[r.i], block)
	if err != nil {
		return nil, err
	}
	if c.Damaged() {
		s.ReportDamage(&CorruptError{File: r.file.Path(), Offset: r.info().Offset, Reason: "messages of a run"})
	}
	s.cache.put(r.key(true), c, c.Bytes())
	return c, nil
}

// lookup finds the indexes a scan needs. The apply side reads them as it goes;
// a reader, who holds the lock, notes which are missing, gives the lock back,
// loads them, and scans on.
type lookup struct {
	s       *Store
	wait    bool // read the disk at once
	pins    map[cacheKey]indexed
	missing []run
}

// block returns the index of a run; ok is false when it must be loaded first.
// block is nil when the run is damaged.
func (l *lookup) block(r *run) (block *datafile.Block, ok bool) {
	if l.wait {
		return l.s.loadBlock(r).block, true
	}
	k := r.key(false)
	if in, ok := l.pins[k]; ok {
		return in.block, true
	}
	if v := l.s.cache.get(k); v != nil {
		return v.(indexed).block, true
	}
	r.file.Retain()
	l.missing = append(l.missing, *r)
	return nil, false
}

// full tells that enough is missing to go and load it.
func (l *lookup) full() bool { return len(l.missing) >= 32 }

// load loads what is missing, without any lock.
func (l *lookup) load() {
	l.pins = make(map[cacheKey]indexed, len(l.missing))
	for i := range l.missing {
		r := &l.missing[i]
		l.pins[r.key(false)] = l.s.loadBlock(r)
		l.s.release(r.file)
	}
	l.missing = l.missing[:0]
}

// release gives a hold on a file back.
func (s *Store) release(f *dataFile) {
	if err := f.Release(); err != nil {
		s.o.Log.Warn("closing a data file", "err", err)
	}
}
