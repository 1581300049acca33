package store

import (
	"encoding/binary"

	"github.com/heraldmq/herald/topics"
)

// A ref says where a message of the tail is: the number of its entry's slot
// (modulo 2^32) in the upper half, the offset of its record in the lower.
type ref uint64

func makeRef(slot uint64, off int) ref { return ref(slot<<32 | uint64(uint32(off))) }

// slot is one entry of the tail, or one message the store made while it applied
// an entry. data is never written to again.
type slot struct {
	data []byte
	time topics.Nanos
	more bool // of the same entry as the slot before
}

// slotOverhead is what a slot costs beside its data: it bounds a tail of tiny
// entries.
const slotOverhead = 64

// tail is a ring of the latest entries, oldest first.
type tail struct {
	slots []slot // length is a power of two
	base  uint64 // number of the oldest slot
	next  uint64 // number of the next slot
	bytes int64
}

// push adds an entry and returns its slot's number.
func (t *tail) push(s slot) uint64 {
	if int(t.next-t.base) == len(t.slots) {
		t.grow()
	}
	n := t.next
	t.slots[n&uint64(len(t.slots)-1)] = s
	t.next++
	t.bytes += int64(len(s.data)) + slotOverhead
	return n
}

func (t *tail) grow() {
	bigger := make([]slot, max(64, 2*len(t.slots)))
	for n := t.base; n < t.next; n++ {
		bigger[n&uint64(len(bigger)-1)] = t.slots[n&uint64(len(t.slots)-1)]
	}
	t.slots = bigger
}

// drop forgets the slots below until.
func (t *tail) drop(until uint64) {
	for ; t.base < until && t.base < t.next; t.base++ {
		s := &t.slots[t.base&uint64(len(t.slots)-1)]
		t.bytes -= int64(len(s.data)) + slotOverhead
		*s = slot{}
	}
}

// at returns the slot with a number that the ring holds.
func (t *tail) at(n uint64) *slot { return &t.slots[n&uint64(len(t.slots)-1)] }

// slotOf returns the slot of a ref that the ring holds.
func (t *tail) slotOf(r ref) *slot {
	return &t.slots[(t.base+uint64(uint32(r>>32)-uint32(t.base)))&uint64(len(t.slots)-1)]
}

// Layout of a publish record, by offsets from its start; topics/entry.go draws
// it. Records were parsed once when they were applied, so no bounds are checked
// again here.
const (
	recordLength  = 1
	recordFlags   = topics.RecordHeader + 8
	recordSubject = topics.RecordHeader + 9
	recordHeader  = topics.RecordHeader + 11
	recordBody    = topics.RecordHeader + publishFixed
	publishFixed  = 15 // bytes of a publish's body before its subject
)

// lengths returns the lengths of the parts of the record at off.
func lengths(data []byte, off int) (subject, header, payload int) {
	r := data[off:]
	subject = int(binary.LittleEndian.Uint16(r[recordSubject:]))
	header = int(binary.LittleEndian.Uint32(r[recordHeader:]))
	payload = int(binary.LittleEndian.Uint32(r[recordLength:])) + topics.RecordHeader - recordBody - subject - header
	return subject, header, payload
}

// parts returns the subject, header and payload of the record at off.
func parts(data []byte, off int) (subject, header, payload []byte) {
	s, h, p := lengths(data, off)
	b := data[off+recordBody:]
	return b[:s:s], b[s : s+h : s+h], b[s+h : s+h+p : s+h+p]
}

// refsKept is the largest ring that an emptied topic keeps.
const refsKept = 64

// refRing holds, for a topic's sequences from first on, where each message is in
// the tail and which subject it has. Both columns are free of pointers.
type refRing struct {
	refs  []ref    // length is a power of two, or nil
	subs  []uint32 // slots of the subject table
	first topics.Sequence
	n     int
}

func (r *refRing) push(seq topics.Sequence, at ref, sub uint32) {
	if r.n == len(r.refs) {
		r.grow()
	}
	if r.n == 0 {
		r.first = seq
	}
	i := uint64(seq) & uint64(len(r.refs)-1)
	r.refs[i], r.subs[i] = at, sub
	r.n++
}

// skip passes over the sequences up to seq: nothing is kept of them. Where the ring has
// to grow for it, they cost no time, and no memory that is touched.
func (r *refRing) skip(seq topics.Sequence) {
	if r.n == 0 {
		return
	}
	next := r.first + topics.Sequence(r.n)
	n := r.n + int(seq+1-next)
	if n > len(r.refs) {
		size := max(4, 2*len(r.refs))
		for size < n {
			size *= 2
		}
		r.growTo(size)
	} else {
		for ; next <= seq; next++ {
			i := uint64(next) & uint64(len(r.refs)-1)
			r.refs[i], r.subs[i] = 0, 0
		}
	}
	r.n = n
}

func (r *refRing) grow() { r.growTo(max(4, 2*len(r.refs))) }

// growTo makes the ring one of size, a power of two.
func (r *refRing) growTo(size int) {
	refs, subs := make([]ref, size), make([]uint32, size)
	for i := range uint64(r.n) {
		from, to := (uint64(r.first)+i)&uint64(len(r.refs)-1), (uint64(r.first)+i)&uint64(size-1)
		refs[to], subs[to] = r.refs[from], r.subs[from]
	}
	r.refs, r.subs = refs, subs
}

// has tells whether seq is in the ring's range.
func (r *refRing) has(seq topics.Sequence) bool {
	return r.n > 0 && seq >= r.first && uint64(seq-r.first) < uint64(r.n)
}

// at returns the ref and subject of a sequence the ring has.
func (r *refRing) at(seq topics.Sequence) (ref, uint32) {
	i := uint64(seq) & uint64(len(r.refs)-1)
	return r.refs[i], r.subs[i]
}

// trim forgets the sequences below seq, and the memory when none are left.
func (r *refRing) trim(seq topics.Sequence) {
	if r.n == 0 || seq <= r.first {
		return
	}
	if uint64(seq-r.first) >= uint64(r.n) {
		if r.n = 0; len(r.refs) > refsKept {
			*r = refRing{}
		}
		return
	}
	r.n -= int(seq - r.first)
	r.first = seq
}
