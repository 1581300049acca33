package datafile

import (
	"encoding/binary"
	"slices"
	"sort"

	"github.com/heraldmq/herald/topics"
)

// Subject is one subject of a run: how many of its messages have it, and the
// places of the first and the last of them.
type Subject struct {
	Name  string
	Count uint32
	First uint32
	Last  uint32
}

// Block is the index of one run, in memory. Places count the run's messages
// from 0. It is immutable.
type Block struct {
	Subjects []Subject
	first    topics.Sequence
	n        int
	seqs     []uint32 // distance from first; nil when dense
	offsets  []uint32 // n+1, from the run's start
	headers  []uint64 // bit per message that has a header; nil when none has
	subjects []uint16 // places in Subjects; nil when there is one
	starts   []uint16 // places at which times change
	times    []topics.Nanos
	expires  []topics.Nanos // nil when none expires
	rebuilt  bool
}

// Len returns the number of messages.
func (b *Block) Len() int { return b.n }

// Sequence returns the sequence of the message at a place.
func (b *Block) Sequence(i int) topics.Sequence {
	if b.seqs == nil {
		return b.first + topics.Sequence(i)
	}
	return b.first + topics.Sequence(b.seqs[i])
}

// Find returns the place of the first message at or after seq, Len() if there is
// none.
func (b *Block) Find(seq topics.Sequence) int {
	if seq <= b.first {
		return 0
	}
	d := uint64(seq - b.first)
	if b.seqs == nil {
		return int(min(d, uint64(b.n)))
	}
	if d > uint64(b.seqs[b.n-1]) {
		return b.n
	}
	i, _ := slices.BinarySearch(b.seqs, uint32(d))
	return i
}

// Size returns the bytes of subject, header and payload of a message, and
// whether it has a header.
func (b *Block) Size(i int) (bytes int, header bool) {
	bytes = int(b.offsets[i+1]-b.offsets[i]) - RecordHeader
	return bytes, b.headers != nil && b.headers[i/64]&(1<<(i%64)) != 0
}

// Subject returns the place of a message's subject in Subjects.
func (b *Block) Subject(i int) int {
	if b.subjects == nil {
		return 0
	}
	return int(b.subjects[i])
}

// Time returns the time of a message.
func (b *Block) Time(i int) topics.Nanos {
	at := sort.Search(len(b.starts), func(j int) bool { return int(b.starts[j]) > i })
	return b.times[at-1]
}

// Expires returns when a message goes by a time of its own, 0 if it has none.
func (b *Block) Expires(i int) topics.Nanos {
	if b.expires == nil {
		return 0
	}
	return b.expires[i]
}

// Rebuilt tells that the block was made from the records, which don't say when
// messages expire.
func (b *Block) Rebuilt() bool { return b.rebuilt }

// Bytes returns about how much memory the block takes.
func (b *Block) Bytes() int64 {
	n := int64(160 + 4*cap(b.seqs) + 4*cap(b.offsets) + 8*cap(b.headers) + 2*cap(b.subjects) + 2*cap(b.starts) +
		8*cap(b.times) + 8*cap(b.expires) + 40*cap(b.Subjects))
	for i := range b.Subjects {
		n += int64(len(b.Subjects[i].Name))
	}
	return n
}

// span returns where in the run a message's record is.
func (b *Block) span(i int) (from, to uint32) { return b.offsets[i], b.offsets[i+1] }

// blockBuilder gathers a block while its run is written.
type blockBuilder struct {
	block  Block
	places map[string]uint16
	longest,
	headers uint32
	expiring bool
}

func (w *blockBuilder) add(m *Message) {
	b := &w.block
	if b.n == 0 {
		b.first = m.Sequence
		b.offsets = append(b.offsets, 0)
	}
	i := b.n
	b.n++
	b.seqs = append(b.seqs, uint32(m.Sequence-b.first))
	size := uint32(m.size())
	w.longest = max(w.longest, size)
	b.offsets = append(b.offsets, b.offsets[i]+size)
	if i%64 == 0 {
		b.headers = append(b.headers, 0)
	}
	if len(m.Header) > 0 {
		b.headers[i/64] |= 1 << (i % 64)
		w.headers++
	}
	if len(b.times) == 0 || b.times[len(b.times)-1] != m.Time {
		b.starts = append(b.starts, uint16(i))
		b.times = append(b.times, m.Time)
	}
	b.expires = append(b.expires, m.Expires)
	w.expiring = w.expiring || m.Expires != 0
	b.subjects = append(b.subjects, w.place(m.Subject, uint32(i)))
}

func (w *blockBuilder) place(name []byte, i uint32) uint16 {
	b := &w.block
	at, ok := uint16(0), false
	if n := len(b.subjects); n > 0 && b.Subjects[b.subjects[n-1]].Name == string(name) {
		at, ok = b.subjects[n-1], true
	} else if w.places != nil {
		at, ok = w.places[string(name)]
	}
	if !ok {
		at = uint16(len(b.Subjects))
		b.Subjects = append(b.Subjects, Subject{Name: string(name), First: i})
		if w.places == nil {
			w.places = make(map[string]uint16)
		}
		w.places[b.Subjects[at].Name] = at
	}
	s := &b.Subjects[at]
	s.Count++
	s.Last = i
	return at
}

func (w *blockBuilder) reset() {
	b := &w.block
	*b = Block{
		Subjects: b.Subjects[:0], seqs: b.seqs[:0], offsets: b.offsets[:0], headers: b.headers[:0],
		subjects: b.subjects[:0], starts: b.starts[:0], times: b.times[:0], expires: b.expires[:0],
	}
	w.longest, w.headers, w.expiring = 0, 0, false
	clear(w.places)
}

// Bits of a block's flags.
const (
	flagSparse   = 1 << iota // has sequences
	flagHeaders              // has header bits
	flagWide                 // lengths take 4 bytes
	flagSubjects             // has subjects
	flagExpires              // has expiries
)

// appendDictionary writes the dictionary part with its checksum.
func (w *blockBuilder) appendDictionary(dst []byte) []byte {
	start := len(dst)
	b := &w.block
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b.Subjects)))
	for i := range b.Subjects {
		s := &b.Subjects[i]
		dst = binary.LittleEndian.AppendUint32(dst, s.Count)
		dst = binary.LittleEndian.AppendUint16(dst, uint16(s.First))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(s.Last))
		dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Name)))
		dst = append(dst, s.Name...)
	}
	return binary.LittleEndian.AppendUint32(dst, Checksum(0, dst[start:]))
}

// appendColumns writes the columns part with its checksum.
func (w *blockBuilder) appendColumns(dst []byte) []byte {
	start := len(dst)
	b := &w.block
	flags := byte(0)
	set := func(on bool, f byte) {
		if on {
			flags |= f
		}
	}
	set(b.seqs[b.n-1] != uint32(b.n-1), flagSparse)
	set(w.headers > 0, flagHeaders)
	set(w.longest > 0xffff, flagWide)
	set(len(b.Subjects) > 1, flagSubjects)
	set(w.expiring, flagExpires)
	dst = append(dst, flags)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(b.n))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.first))
	for i := range b.n {
		size := b.offsets[i+1] - b.offsets[i]
		if flags&flagWide != 0 {
			dst = binary.LittleEndian.AppendUint32(dst, size)
		} else {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(size))
		}
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(b.starts)-1))
	for i := range b.starts {
		dst = binary.LittleEndian.AppendUint16(dst, b.starts[i])
		dst = binary.LittleEndian.AppendUint64(dst, uint64(b.times[i]))
	}
	if flags&flagSparse != 0 {
		for _, v := range b.seqs {
			dst = binary.LittleEndian.AppendUint32(dst, v)
		}
	}
	if flags&flagHeaders != 0 {
		for _, v := range b.headers {
			dst = binary.LittleEndian.AppendUint64(dst, v)
		}
	}
	if flags&flagSubjects != 0 {
		for _, v := range b.subjects {
			dst = binary.LittleEndian.AppendUint16(dst, v)
		}
	}
	if flags&flagExpires != 0 {
		for _, v := range b.expires {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(v))
		}
	}
	return binary.LittleEndian.AppendUint32(dst, Checksum(0, dst[start:]))
}
