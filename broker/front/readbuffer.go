package front

import "net"

// Sizes of read buffers. A connection starts with little and grows while reads
// fill the buffer; one that is sent larger messages gets room for more than one
// of them, so that few are read in two parts.
const (
	readBufferMin = 2 << 10
	readBufferMax = 64 << 10
	// largeBufferMax is up to which size there is room for more than one.
	largeBufferMax = 512 << 10
	shrinkAfter    = 64 // reads in a row that used less than a quarter
	// moveMax is how many bytes are moved to the front of a buffer rather than
	// to go on behind them.
	moveMax = 4 << 10
)

// readBuffer is what a session reads into. Owned by its reader.
//
// Invariant: bytes before from may be referred to by outboxes and don't change
// while they are.
type readBuffer struct {
	pool     *chunkPool
	c        *chunk // nil while the connection is quiet
	from, to int    // what is not handled yet
	size     int    // of the next chunk
	need     int    // how long the operation at from is, 0 when that isn't known
	stride   int    // length of the last large operation
	small    int    // reads in a row that used little
}

func (r *readBuffer) init(p *chunkPool) { r.pool, r.size = p, readBufferMin }

// short tells that the operation at the front is known not to be complete.
func (r *readBuffer) short() bool { return r.to-r.from < r.need }

func (r *readBuffer) bytes() []byte { return r.c.buf[r.from:r.to] }

// space returns where to read to.
func (r *readBuffer) space() []byte {
	if r.c == nil {
		r.c = r.pool.get(r.size)
		r.c.buf = r.c.buf[:cap(r.c.buf)]
		r.from, r.to = 0, 0
	}
	end := len(r.c.buf)
	if r.stride > 0 {
		// Whole messages, as long as all are alike.
		if whole := end - (end-r.from)%r.stride; whole > r.to {
			end = whole
		}
	}
	return r.c.buf[r.to:end]
}

// park gives the buffer back while nothing is there to be read.
func (r *readBuffer) park() {
	if r.c != nil && r.from == r.to {
		r.release()
	}
}

func (r *readBuffer) release() {
	if r.c != nil {
		r.c.release()
		r.c = nil
	}
}

// handled tells that only the last left bytes are still to be handled, when the
// operation they begin is complete (0: not known). The next read has room for
// it.
func (r *readBuffer) handled(left, need int) {
	r.resize(r.to-r.from, left, need)
	r.from, r.need = r.to-left, need
	shared := r.c.refs.Load() > 1
	want := max(need, left+1)
	switch {
	case left == 0 && !shared:
		if len(r.c.buf) == r.size {
			r.from, r.to = 0, 0
		} else {
			r.release()
		}
	case left == 0 && len(r.c.buf)-r.to >= max(r.stride, readBufferMin):
	case left == 0:
		r.release()
	case !shared && left <= moveMax && want <= len(r.c.buf) && len(r.c.buf) == r.size:
		r.to = copy(r.c.buf, r.bytes())
		r.from = 0
	case left > moveMax && r.from+want <= len(r.c.buf):
	default:
		old, rest := r.c, r.bytes()
		r.c = r.pool.get(max(r.size, want))
		r.c.buf = r.c.buf[:cap(r.c.buf)]
		r.from, r.to = 0, copy(r.c.buf, rest)
		old.release()
	}
}

// resize sets the size of the next buffer after a batch of length bytes.
func (r *readBuffer) resize(length, left, need int) {
	if length < r.size/4 && need < r.size/4 {
		r.small++
	} else {
		r.small = 0
	}
	if need > shareMin {
		r.stride = need
	}
	switch {
	case need > readBufferMax && need > r.size/2 && need <= largeBufferMax/2:
		r.size = poolSize(2 * need)
	case need > r.size:
		r.size = poolSize(need)
	case left == r.size:
		r.size = poolSize(r.size * 2) // a control line; the parser bounds it
	case r.to == len(r.c.buf) && r.size < readBufferMax:
		r.size = min(r.size*4, readBufferMax)
	case r.small >= shrinkAfter && r.size > readBufferMin:
		r.size, r.small, r.stride = poolSize(min(r.size/4, readBufferMax)), 0, 0
	}
}

// reader reads from a connection into a readBuffer.
type reader interface {
	// read waits for bytes. An error may come with some.
	read(r *readBuffer) (n int, err error)
}

// connReader reads from any connection: the buffer is kept while it waits.
type connReader struct{ net.Conn }

func (c connReader) read(r *readBuffer) (int, error) { return c.Read(r.space()) }
