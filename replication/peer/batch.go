package peer

import "github.com/heraldmq/herald/replication/peer/wire"

// batch is what is written at once.
type batch struct {
	vector  [][]byte
	scratch []byte
	start   int // of what is in scratch and not in vector
	bytes   int
}

func (b *batch) reset(copies bool) {
	size := scratchBytes
	if copies {
		size = batchBytes + wire.FrameMax + 2*wire.HeaderBytes
	}
	if cap(b.scratch) < size {
		b.scratch = make([]byte, 0, size)
	}
	clear(b.vector)
	b.vector, b.scratch, b.start, b.bytes = b.vector[:0], b.scratch[:0], 0, 0
}

func (b *batch) seal() {
	if len(b.scratch) > b.start {
		b.vector = append(b.vector, b.scratch[b.start:len(b.scratch):len(b.scratch)])
		b.start = len(b.scratch)
	}
}

func (b *batch) add(p []byte, copies bool) {
	b.bytes += len(p)
	if copies || len(p) <= copyBytesMax {
		b.scratch = append(b.scratch, p...)
		return
	}
	b.seal()
	b.vector = append(b.vector, p)
}

func (b *batch) full() bool {
	return b.bytes >= batchBytes || len(b.vector) >= vectorMax
}
