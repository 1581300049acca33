package datafile

import (
	"encoding/binary"

	"github.com/heraldmq/herald/topics"
)

// checked returns b without its checksum, if that is right.
func checked(b []byte) ([]byte, bool) {
	if len(b) < 4 {
		return nil, false
	}
	body := b[:len(b)-4]
	return body, binary.LittleEndian.Uint32(b[len(body):]) == Checksum(0, body)
}

// cursor reads integers off a slice; once it has run out, ok is false.
type cursor struct {
	b  []byte
	ok bool
}

func (c *cursor) take(n int) []byte {
	if !c.ok || n < 0 || n > len(c.b) {
		c.ok = false
		return nil
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// decodeDictionary reads a dictionary part of a run of n messages. The names are
// copies.
func decodeDictionary(b []byte, n int) ([]Subject, bool) {
	body, ok := checked(b)
	c := cursor{b: body, ok: ok}
	count := int(c.u32())
	if !c.ok || count == 0 || count > n || count > len(c.b)/10 {
		return nil, false
	}
	names := string(c.b) // one copy for all
	total := uint64(0)
	subjects := make([]Subject, count)
	for i := range subjects {
		s := &subjects[i]
		s.Count, s.First, s.Last = c.u32(), uint32(c.u16()), uint32(c.u16())
		size := int(c.u16())
		at := len(names) - len(c.b)
		if c.take(size); !c.ok || s.First > s.Last || int(s.Last) >= n || s.Count == 0 {
			return nil, false
		}
		s.Name = names[at : at+size]
		total += uint64(s.Count)
	}
	return subjects, len(c.b) == 0 && total == uint64(n)
}

// decodeColumns reads a columns part into a block whose Subjects are set. The
// run says how many messages and record bytes there must be.
func decodeColumns(b []byte, r *Run, block *Block) bool {
	body, ok := checked(b)
	c := cursor{b: body, ok: ok}
	flagByte := c.take(1)
	n := int(c.u32())
	block.first = topics.Sequence(c.u64())
	if !c.ok || n != int(r.Messages) || n > RunMessages || block.first != r.First {
		return false
	}
	flags := flagByte[0]
	block.n = n
	if !block.decodeLengths(&c, flags&flagWide != 0) || block.offsets[n] != r.Length || !block.decodeTimes(&c) {
		return false
	}
	if flags&flagSparse != 0 && !block.decodeSequences(&c) {
		return false
	}
	if block.Sequence(n-1) != r.Last {
		return false
	}
	if flags&flagHeaders != 0 {
		block.headers = make([]uint64, (n+63)/64)
		for i := range block.headers {
			block.headers[i] = c.u64()
		}
	}
	if flags&flagSubjects != 0 {
		block.subjects = make([]uint16, n)
		for i := range block.subjects {
			block.subjects[i] = c.u16()
			if int(block.subjects[i]) >= len(block.Subjects) {
				return false
			}
		}
	}
	if flags&flagExpires != 0 {
		block.expires = make([]topics.Nanos, n)
		for i := range block.expires {
			block.expires[i] = topics.Nanos(c.u64())
		}
	}
	return c.ok && len(c.b) == 0
}

func (b *Block) decodeLengths(c *cursor, wide bool) bool {
	b.offsets = make([]uint32, b.n+1)
	for i := range b.n {
		size := uint32(0)
		if wide {
			size = c.u32()
		} else {
			size = uint32(c.u16())
		}
		if !c.ok || size < RecordHeader || b.offsets[i]+size < size {
			return false
		}
		b.offsets[i+1] = b.offsets[i] + size
	}
	return true
}

func (b *Block) decodeTimes(c *cursor) bool {
	n := int(c.u16()) + 1
	if n > b.n || n > len(c.b)/10 {
		return false
	}
	b.starts, b.times = make([]uint16, n), make([]topics.Nanos, n)
	for i := range n {
		b.starts[i], b.times[i] = c.u16(), topics.Nanos(c.u64())
		if i == 0 && b.starts[0] != 0 || i > 0 && b.starts[i] <= b.starts[i-1] || int(b.starts[i]) >= b.n {
			return false
		}
	}
	return c.ok
}

func (b *Block) decodeSequences(c *cursor) bool {
	b.seqs = make([]uint32, b.n)
	for i := range b.seqs {
		b.seqs[i] = c.u32()
		if i == 0 && b.seqs[0] != 0 || i > 0 && b.seqs[i] <= b.seqs[i-1] {
			return false
		}
	}
	return c.ok
}
