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
)

// chunkSizes are the sizes the pool keeps, and how many of each; what is more
// or larger is left to the garbage collector. The largest are read buffers.
var chunkSizes = [...]struct{ size, most int }{
	{smallChunk, 4096},
	{8 << 10, 256},
	{largeChunk, 1024},
	{64 << 10, 128},
	{128 << 10, 64},
	{256 << 10, 64},
	{512 << 10, 16},
	{1 << 20, 8},
	{2 << 20, 4},
}

// chunk is a piece of memory for bytes on their way. Its holder writes to it
// until it is handed over; from then on it is read-only and belongs to as many
// outboxes as refs says. The last one to release it gives it back to the pool.
//
// A read buffer is a chunk too: outboxes refer to large messages in it while
// its session goes on filling what is behind them.
type chunk struct {
	buf   []byte
	refs  atomic.Int32
	pool  *chunkPool
	class int // in chunkSizes; -1: not for the pool
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
	mu   sync.Mutex
	free [len(chunkSizes)][]*chunk
}

func chunkClass(size int) (class int) {
	for class < len(chunkSizes) && chunkSizes[class].size < size {
		class++
	}
	return class
}

// poolSize is the size of the chunk that get returns for size bytes.
func poolSize(size int) int {
	if class := chunkClass(size); class < len(chunkSizes) {
		return chunkSizes[class].size
	}
	return size
}

// get returns an empty chunk for at least size bytes.
func (p *chunkPool) get(size int) *chunk {
	class := chunkClass(size)
	var c *chunk
	if class == len(chunkSizes) {
		c = &chunk{buf: make([]byte, 0, size), pool: p, class: -1}
	} else if c = p.pop(class); c == nil {
		c = &chunk{buf: make([]byte, 0, chunkSizes[class].size), pool: p, class: class}
	}
	c.refs.Store(1)
	return c
}

func (p *chunkPool) pop(class int) *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.free[class]
	n := len(list)
	if n == 0 {
		return nil
	}
	c := list[n-1]
	list[n-1] = nil
	p.free[class] = list[:n-1]
	return c
}

func (p *chunkPool) put(c *chunk) {
	if c.class < 0 {
		return
	}
	c.buf = c.buf[:0]
	p.mu.Lock()
	if len(p.free[c.class]) < chunkSizes[c.class].most {
		p.free[c.class] = append(p.free[c.class], c)
	}
	p.mu.Unlock()
}

// piece is a part of a chunk, and one reference to it.
type piece struct {
	c *chunk
	b []byte
}

// spool is a run of bytes in chunks that is still being written.
type spool struct {
	full []piece
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
		if n <= smallChunk {
			s.cur = p.get(smallChunk)
		} else {
			s.cur = p.get(largeChunk)
		}
	case cap(s.cur.buf) < largeChunk && len(s.cur.buf)+n <= largeChunk:
		c := p.get(largeChunk)
		c.buf = append(c.buf, s.cur.buf...)
		s.cur.release()
		s.cur = c
	case n <= largeChunk:
		s.seal()
		s.cur = p.get(largeChunk)
	}
}

// seal ends the current chunk.
func (s *spool) seal() {
	if s.cur != nil {
		s.full = append(s.full, piece{s.cur, s.cur.buf})
		s.cur = nil
	}
}

// spread adds b over as many chunks as it takes.
func (s *spool) spread(p *chunkPool, b []byte) {
	for len(b) > 0 {
		if s.cur == nil || s.cur.room() == 0 {
			s.seal()
			s.cur = p.get(largeChunk)
		}
		n := copy(s.cur.buf[len(s.cur.buf):cap(s.cur.buf)], b)
		s.cur.buf = s.cur.buf[:len(s.cur.buf)+n]
		b = b[n:]
	}
}

// link adds a part of a chunk that others read as well, without copying.
func (s *spool) link(p piece) {
	s.seal()
	p.c.refs.Add(1)
	s.full = append(s.full, p)
	s.size += len(p.b)
}

// take ends the spool: the pieces are the caller's, the spool is empty.
func (s *spool) take(dst []piece) []piece {
	s.seal()
	dst = append(dst, s.full...)
	clear(s.full)
	s.full, s.size = s.full[:0], 0
	return dst
}
