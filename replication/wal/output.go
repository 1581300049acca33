package wal

import (
	"fmt"

	"github.com/heraldmq/herald/replication/disk"
)

// outputBytes is how much is written at a time, at most.
const outputBytes = 1 << 20

// output is what is being written to the segment in use. It writes whole blocks, which is
// what can go past the page cache (see disk.OpenBulk): the kernel's copy of each page, and
// the walk over the pages that a sync has to write, took as long as the rest of a batch.
//
// So the block in which a batch ended is written once more with the next one, with the same
// bytes where there were some: whatever of a torn write reaches the disk, sector by sector,
// what was durable stays as it is. What is behind a batch in its last block is zeros.
//
// It is owned by the writer.
type output struct {
	file disk.File
	size int64  // of the segment
	buf  []byte // aligned to blocks
	n    int    // bytes of buf that are filled
	at   int64  // where in the file buf goes; a multiple of a block
	err  error  // of the batch
}

const blockMask = disk.BulkAlign - 1

// begin turns to a segment in which nothing is written yet.
func (o *output) begin(seg *segment) { o.file, o.size, o.n, o.at = seg.file, seg.size, 0, 0 }

// resume turns to a segment that is written up to end.
func (o *output) resume(seg *segment, end int64) error {
	o.begin(seg)
	o.room()
	o.at = end &^ blockMask
	o.n = int(end - o.at)
	if o.n == 0 {
		return nil
	}
	if n, err := o.file.ReadAt(o.buf[:o.n], o.at); n < o.n {
		return fmt.Errorf("read the end of segment %d: %w", seg.head.number, err)
	}
	return nil
}

func (o *output) room() {
	if o.buf == nil {
		o.buf = disk.AlignedBuffer(outputBytes)
	}
}

// record appends a record and sets its checksum.
func (o *output) record(r *record, data, ext []byte, seed uint32) {
	var b [recordHeader]byte
	for _, part := range r.encode(&b, data, ext, seed) {
		o.append(part)
	}
}

func (o *output) append(p []byte) {
	o.room()
	for len(p) > 0 {
		n := copy(o.buf[o.n:], p)
		p = p[n:]
		if o.n += n; o.n == len(o.buf) {
			o.write(o.n)
			o.at += int64(o.n)
			o.n = 0
		}
	}
}

// flush writes what is left of the batch, and tells how writing all of it went. It is not
// durable yet.
func (o *output) flush() error {
	if o.n > 0 {
		n := (o.n + blockMask) &^ blockMask
		clear(o.buf[o.n:n])
		o.write(max(o.n, int(min(int64(n), o.size-o.at))))
		whole := o.n &^ blockMask
		copy(o.buf, o.buf[whole:o.n])
		o.at += int64(whole)
		o.n -= whole
	}
	return o.err
}

func (o *output) write(n int) {
	if o.err == nil {
		_, o.err = o.file.WriteAt(o.buf[:n], o.at)
	}
}
