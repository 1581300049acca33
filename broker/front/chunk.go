package front

import (
	"sync"
	"sync/atomic"
)

// Sizes of the pieces that outgoing bytes are staged in. Most stages of most
// batches hold little, so each starts with a small chunk.
const (
	smallChunk = 2 << 10
	largeChunk = 32 << 10
	// What the pool keeps for later; more is left to the garbage collector.
	smallChunksMax = 4096
	largeChunksMax = 1024
)

// chunk is a piece of outgoing bytes. Its holder writes to it until it is handed
// over; from then on it is read-only and belongs to as many outboxes as refs
// says. The last one to release it gives it back to the pool.
type chunk struct {
	buf  []byte
	refs atomic.Int32
	pool *chunkPool
}

func (c *chunk) room() int { return cap(c.buf) - len(c.buf) }

func (c *chunk) release() {
	if c.refs.Add(-1) == 0 {
		c.pool.put(c)
	}
}

// chunkPool hands out the chunk that came back last: its memory is warm. (A
// sync.Pool is emptied by each garbage collection, and touching fresh memory is
// the slowest thing a virtual machine can do.)
type chunkPool struct {
	mu    sync.Mutex
	small []*chunk
	large []*chunk
}

func (p *chunkPool) get(large bool) *chunk {
	size, list := smallChunk, &p.small
	if large {
		size, list = largeChunk, &p.large
	}
	p.mu.Lock()
	var c *chunk
	if n := len(*list); n > 0 {
		c = (*list)[n-1]
		(*list)[n-1] = nil
		*list = (*list)[:n-1]
	}
	p.mu.Unlock()
	if c == nil {
		c = &chunk{buf: make([]byte, 0, size), pool: p}
	}
	c.refs.Store(1)
	return c
}

func (p *chunkPool) put(c *chunk) {
	c.buf = c.buf[:0]
	list, most := &p.small, smallChunksMax
	if cap(c.buf) >= largeChunk {
		list, most = &p.large, largeChunksMax
	}
	p.mu.Lock()
	if len(*list) < most {
		*list = append(*list, c)
	}
	p.mu.Unlock()
}

// spool is a run of bytes in chunks that is still being written.
type spool struct {
	full []*chunk
	cur  *chunk
	size int
}

// append2 adds a and b. It is the innermost step of delivery.
func (s *spool) append2(p *chunkPool, a, b []byte) {
	n := len(a) + len(b)
	s.size += n
	if s.cur == nil || s.cur.room() < n {
		s.grow(p, n)
	}
	if c := s.cur; c.room() >= n {
		c.buf = append(append(c.buf, a...), b...)
		return
	}
	s.spread(p, a)
	s.spread(p, b)
}

// grow makes room for n bytes, as far as a large chunk has it.
func (s *spool) grow(p *chunkPool, n int) {
	switch {
	case s.cur == nil:
		s.cur = p.get(n > smallChunk)
	case cap(s.cur.buf) < largeChunk && len(s.cur.buf)+n <= largeChunk:
		c := p.get(true)
		c.buf = append(c.buf, s.cur.buf...)
		s.cur.release()
		s.cur = c
	case n <= largeChunk:
		s.full = append(s.full, s.cur)
		s.cur = p.get(true)
	}
}

// spread adds b over as many chunks as it takes.
func (s *spool) spread(p *chunkPool, b []byte) {
	for len(b) > 0 {
		if s.cur == nil || s.cur.room() == 0 {
			if s.cur != nil {
				s.full = append(s.full, s.cur)
			}
			s.cur = p.get(true)
		}
		n := copy(s.cur.buf[len(s.cur.buf):cap(s.cur.buf)], b)
		s.cur.buf = s.cur.buf[:len(s.cur.buf)+n]
		b = b[n:]
	}
}

// link adds a chunk that others read as well, without copying.
func (s *spool) link(c *chunk) {
	if s.cur != nil {
		s.full = append(s.full, s.cur)
		s.cur = nil
	}
	c.refs.Add(1)
	s.full = append(s.full, c)
	s.size += len(c.buf)
}

// take ends the spool: the chunks are the caller's, the spool is empty.
func (s *spool) take(dst []*chunk) []*chunk {
	dst = append(dst, s.full...)
	if s.cur != nil {
		dst = append(dst, s.cur)
	}
	clear(s.full)
	s.full, s.cur, s.size = s.full[:0], nil, 0
	return dst
}
