package store

import (
	"math/bits"

	"github.com/heraldmq/herald/topics"
)

const (
	blockBits = 12 // sequences per block of the dead set, as a power of two
	blockSize = 1 << blockBits
	groupBits = 6 // blocks per group of the dead set, as a power of two
)

// deadBlock says which of blockSize sequences are dead.
type deadBlock struct {
	bits  *[blockSize / 64]uint64 // nil when none or all are dead
	n     uint16                  // how many are dead
	dirty bool                    // changed since the last flush
}

// deadSet is the set of dead sequences between a topic's first live message and
// its last sequence. A topic that only ever loses its oldest message keeps it
// empty: what is below first needs no bit.
//
// Counting the dead of a range sums whole groups, then whole blocks, then words:
// a microsecond for ten million messages, whatever was deleted where.
type deadSet struct {
	base   uint64 // number of blocks[0]; a multiple of the group size
	blocks []deadBlock
	groups []uint32 // dead per group of blocks
	total  uint64
}

func (d *deadSet) block(seq topics.Sequence) *deadBlock {
	b := uint64(seq) >> blockBits
	if b < d.base || b-d.base >= uint64(len(d.blocks)) {
		return nil
	}
	return &d.blocks[b-d.base]
}

// has tells whether seq is dead.
func (d *deadSet) has(seq topics.Sequence) bool {
	if d.total == 0 {
		return false
	}
	b := d.block(seq)
	if b == nil || b.n == 0 {
		return false
	}
	return b.bits == nil || b.bits[uint64(seq)%blockSize/64]&(1<<(seq%64)) != 0
}

// add makes seq dead; it must not be yet.
func (d *deadSet) add(seq topics.Sequence) {
	bn := uint64(seq) >> blockBits
	d.cover(bn)
	b := &d.blocks[bn-d.base]
	if b.bits == nil {
		b.bits = new([blockSize / 64]uint64)
	}
	b.bits[uint64(seq)%blockSize/64] |= 1 << (seq % 64)
	b.n++
	b.dirty = true
	if b.n == blockSize {
		b.bits = nil
	}
	d.groups[(bn-d.base)>>groupBits]++
	d.total++
}

// addRange makes the sequences from first to last dead, none of which is yet. It takes
// a time in proportion to the blocks they are in.
func (d *deadSet) addRange(first, last topics.Sequence) {
	d.cover(uint64(first) >> blockBits)
	d.cover(uint64(last) >> blockBits)
	for first <= last {
		bn := uint64(first) >> blockBits
		end := min(last, topics.Sequence(bn<<blockBits+blockSize-1))
		b := &d.blocks[bn-d.base]
		n := uint64(end-first) + 1
		if uint64(b.n)+n == blockSize {
			b.bits = nil
		} else {
			if b.bits == nil {
				b.bits = new([blockSize / 64]uint64)
			}
			for seq := first; seq <= end; seq++ {
				b.bits[uint64(seq)%blockSize/64] |= 1 << (seq % 64)
			}
		}
		b.n += uint16(n)
		b.dirty = true
		d.groups[(bn-d.base)>>groupBits] += uint32(n)
		d.total += n
		first = end + 1
	}
}

// cover makes room for block bn.
func (d *deadSet) cover(bn uint64) {
	if len(d.blocks) == 0 {
		d.base = bn &^ (1<<groupBits - 1)
	}
	if bn < d.base { // first went back is impossible, but a set may start in the middle
		low := bn &^ (1<<groupBits - 1)
		d.blocks = append(make([]deadBlock, d.base-low), d.blocks...)
		d.groups = append(make([]uint32, (d.base-low)>>groupBits), d.groups...)
		d.base = low
	}
	if n := int(bn-d.base) + 1 - len(d.blocks); n > 0 {
		d.blocks = append(d.blocks, make([]deadBlock, n)...)
	}
	if n := int((bn-d.base)>>groupBits) + 1 - len(d.groups); n > 0 {
		d.groups = append(d.groups, make([]uint32, n)...)
	}
}

// nextLive returns the first sequence at or after seq that is not dead.
func (d *deadSet) nextLive(seq topics.Sequence) topics.Sequence {
	for d.total > 0 {
		b := d.block(seq)
		if b == nil || b.n == 0 {
			return seq
		}
		if b.bits == nil {
			seq = (seq>>blockBits + 1) << blockBits
			continue
		}
		w := uint64(seq) % blockSize / 64
		live := ^b.bits[w] >> (seq % 64) << (seq % 64)
		if live != 0 {
			return seq&^63 + topics.Sequence(bits.TrailingZeros64(live))
		}
		seq = (seq>>6 + 1) << 6
	}
	return seq
}

// prevLive returns the last sequence at or before seq that is not dead; it may
// be below the topic's first, and is 0 when there is none.
func (d *deadSet) prevLive(seq topics.Sequence) topics.Sequence {
	for d.total > 0 && seq > 0 {
		b := d.block(seq)
		if b == nil || b.n == 0 {
			return seq
		}
		if b.bits == nil {
			seq = seq>>blockBits<<blockBits - 1
			continue
		}
		w := uint64(seq) % blockSize / 64
		live := ^b.bits[w] << (63 - seq%64) >> (63 - seq%64)
		if live != 0 {
			return seq&^63 + topics.Sequence(63-bits.LeadingZeros64(live))
		}
		if seq < 64 {
			return 0
		}
		seq = seq>>6<<6 - 1
	}
	return seq
}

// below returns how many dead sequences there are below seq.
func (d *deadSet) below(seq topics.Sequence) uint64 {
	bn := uint64(seq) >> blockBits
	if d.total == 0 || bn < d.base {
		return 0
	}
	i := bn - d.base
	if i >= uint64(len(d.blocks)) {
		return d.total
	}
	var n uint64
	g := i >> groupBits
	for _, c := range d.groups[:g] {
		n += uint64(c)
	}
	for j := g << groupBits; j < i; j++ {
		n += uint64(d.blocks[j].n)
	}
	b := &d.blocks[i]
	within := uint64(seq) % blockSize
	switch {
	case b.n == 0:
	case b.bits == nil:
		n += within
	default:
		for w := range within / 64 {
			n += uint64(bits.OnesCount64(b.bits[w]))
		}
		n += uint64(bits.OnesCount64(b.bits[within/64] & (1<<(within%64) - 1)))
	}
	return n
}

// trim forgets what is below first, which must be alive or above everything.
func (d *deadSet) trim(first topics.Sequence) {
	if d.total == 0 {
		if len(d.blocks) > 0 {
			*d = deadSet{}
		}
		return
	}
	gone := d.below(first)
	if gone == d.total {
		*d = deadSet{}
		return
	}
	bn := uint64(first) >> blockBits
	if whole := (max(bn, d.base) - d.base) &^ (1<<groupBits - 1); whole > 0 {
		d.blocks, d.groups = d.blocks[whole:], d.groups[whole>>groupBits:]
		d.base += whole
	}
	if gone == 0 {
		return
	}
	for i := range d.blocks {
		if d.base+uint64(i) > bn {
			break
		}
		d.clearBelow(uint64(i), first)
	}
	d.total -= gone
}

// clearBelow takes the bits below first out of block i.
func (d *deadSet) clearBelow(i uint64, first topics.Sequence) {
	b := &d.blocks[i]
	if b.n == 0 {
		return
	}
	group := &d.groups[i>>groupBits]
	if d.base+i < uint64(first)>>blockBits {
		*group -= uint32(b.n)
		*b = deadBlock{}
		return
	}
	within := uint64(first) % blockSize
	before := b.n
	if b.bits == nil {
		return // all dead: first would be in the next block
	}
	for w := range within / 64 {
		b.n -= uint16(bits.OnesCount64(b.bits[w]))
		b.bits[w] = 0
	}
	mask := uint64(1)<<(within%64) - 1
	b.n -= uint16(bits.OnesCount64(b.bits[within/64] & mask))
	b.bits[within/64] &^= mask
	*group -= uint32(before - b.n)
	if b.n == 0 {
		b.bits = nil
	}
	b.dirty = true
}
