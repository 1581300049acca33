package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// topicRecord is what state.db holds of a topic beside its messages, its dead,
// its message ids and its consumers; of those it says how many there must be, for
// a key that is damaged looks like one of another topic.
type topicRecord struct {
	account      string
	created      topics.Nanos
	cfg          *topics.Config
	messages     uint64
	bytes        uint64
	first, last  topics.Sequence
	firstTime    topics.Nanos
	lastTime     topics.Nanos
	lastMsgID    string
	lastConsumer topics.ConsumerID
	idsGone      uint64 // ordinals below are past the window
	idsEnd       uint64 // ordinals from here on were not given yet
	consumers    uint64 // how many there are
	sources      map[string]sourced
	move         move
	fromFile     uint64 // runs of files with lower numbers are not the topic's; 0: all are
}

func (t *Topic) record() topicRecord {
	r := topicRecord{
		account: t.account, created: t.created, cfg: t.cfg, messages: t.messages, bytes: t.bytes,
		first: t.first, last: t.last, firstTime: t.firstTime, lastTime: t.lastTime, lastMsgID: t.lastMsgID,
		sources: maps.Clone(t.sources), move: t.move, fromFile: t.fromFile,
	}
	if t.members != nil {
		r.lastConsumer, r.consumers = t.members.lastID, uint64(len(t.members.byID))
	}
	if d := t.dedupe; d != nil {
		r.idsGone, r.idsEnd = d.gone, d.gone+uint64(len(d.queue)-d.head)
	}
	return r
}

// A record of version 2 ends with the topic's sources, one of version 3 with those and
// with its moves; topics without any are written in version 1.
const (
	topicRecordVersion = 1
	topicRecordSources = 2
	topicRecordMoves   = 3
)

func (r *topicRecord) append(dst []byte) ([]byte, error) {
	cfg, err := json.Marshal(r.cfg)
	if err != nil {
		return nil, fmt.Errorf("encode the config of topic %s: %w", r.cfg.Name, err)
	}
	moved := r.move != move{} || r.fromFile != 0
	switch {
	case moved:
		dst = append(dst, topicRecordMoves)
	case len(r.sources) > 0:
		dst = append(dst, topicRecordSources)
	default:
		dst = append(dst, topicRecordVersion)
	}
	for _, v := range []uint64{
		uint64(r.created), r.messages, r.bytes, uint64(r.first), uint64(r.last), uint64(r.firstTime),
		uint64(r.lastTime), uint64(r.lastConsumer), r.idsGone, r.idsEnd, r.consumers,
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	for _, s := range []string{r.account, r.lastMsgID, string(cfg)} {
		dst = appendText(dst, s)
	}
	if len(r.sources) == 0 && !moved {
		return dst, nil
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.sources)))
	for _, key := range slices.Sorted(maps.Keys(r.sources)) {
		s := r.sources[key]
		dst = appendText(dst, key)
		dst = binary.AppendUvarint(dst, uint64(s.seq))
		dst = binary.AppendUvarint(dst, uint64(s.at))
	}
	if moved {
		for _, v := range []uint64{uint64(r.move.phase), r.move.number, r.move.pass, r.move.done, r.fromFile} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst, nil
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader reads what append wrote; once it has run out, ok is false.
type reader struct {
	b  []byte
	ok bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.ok = false
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) text() string {
	n := r.uvarint()
	if !r.ok || n > uint64(len(r.b)) {
		r.ok = false
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func decodeTopicRecord(b []byte) (r topicRecord, ok bool) {
	if len(b) == 0 || b[0] < topicRecordVersion || b[0] > topicRecordMoves {
		return r, false
	}
	version := b[0]
	in := reader{b: b[1:], ok: true}
	r.created = topics.Nanos(in.uvarint())
	r.messages, r.bytes = in.uvarint(), in.uvarint()
	r.first, r.last = topics.Sequence(in.uvarint()), topics.Sequence(in.uvarint())
	r.firstTime, r.lastTime = topics.Nanos(in.uvarint()), topics.Nanos(in.uvarint())
	r.lastConsumer, r.idsGone = topics.ConsumerID(in.uvarint()), in.uvarint()
	r.idsEnd, r.consumers = in.uvarint(), in.uvarint()
	r.account, r.lastMsgID = in.text(), in.text()
	cfg := in.text()
	if version >= topicRecordSources {
		n := in.uvarint()
		if n > 0 {
			r.sources = make(map[string]sourced)
		}
		for ; n > 0 && in.ok; n-- {
			key := in.text()
			r.sources[key] = sourced{topics.Sequence(in.uvarint()), topics.Nanos(in.uvarint())}
		}
	}
	if version == topicRecordMoves {
		r.move = move{phase: uint8(in.uvarint()), number: in.uvarint(), pass: in.uvarint(), done: in.uvarint()}
		r.fromFile = in.uvarint()
	}
	r.cfg = new(topics.Config)
	ok = in.ok && len(in.b) == 0 && json.Unmarshal([]byte(cfg), r.cfg) == nil && r.first <= r.last+1
	return r, ok
}

// deadCut is a copy of a block of the dead set.
type deadCut struct {
	block uint64
	n     uint16
	bits  *[blockSize / 64]uint64
}

// Forms of a flushed block of the dead set.
const (
	deadAll  = iota // nothing follows
	deadBits        // a bit per sequence
	deadList        // the dead, u16 each
	deadRest        // the living, u16 each
)

func (d *deadCut) append(dst []byte) []byte {
	switch {
	case d.n == blockSize:
		return append(dst, deadAll)
	case d.n < blockSize/32:
		return d.appendList(append(dst, deadList), 0)
	case blockSize-d.n < blockSize/32:
		return d.appendList(append(dst, deadRest), ^uint64(0))
	}
	dst = append(dst, deadBits)
	for _, w := range d.bits {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	return dst
}

func (d *deadCut) appendList(dst []byte, flip uint64) []byte {
	for i, w := range d.bits {
		for w ^= flip; w != 0; w &= w - 1 {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(64*i+bits.TrailingZeros64(w)))
		}
	}
	return dst
}

func decodeDead(b []byte) (d deadCut, ok bool) {
	if len(b) == 0 {
		return d, false
	}
	form, b := b[0], b[1:]
	if form == deadAll {
		d.n = blockSize
		return d, len(b) == 0
	}
	d.bits = new([blockSize / 64]uint64)
	switch {
	case form == deadBits && len(b) == blockSize/8:
		for i := range d.bits {
			d.bits[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
	case (form == deadList || form == deadRest) && len(b)%2 == 0:
		for ; len(b) > 0; b = b[2:] {
			at := binary.LittleEndian.Uint16(b)
			if at >= blockSize {
				return d, false
			}
			d.bits[at/64] |= 1 << (at % 64)
		}
		if form == deadRest {
			for i := range d.bits {
				d.bits[i] = ^d.bits[i]
			}
		}
	default:
		return d, false
	}
	for _, w := range d.bits {
		d.n += uint16(bits.OnesCount64(w))
	}
	if d.n == blockSize {
		d.bits = nil
	}
	return d, true
}

// load puts a block back.
func (d *deadSet) load(c deadCut) {
	if c.n == 0 {
		return
	}
	d.cover(c.block)
	d.blocks[c.block-d.base] = deadBlock{bits: c.bits, n: c.n}
	d.groups[(c.block-d.base)>>groupBits] += uint32(c.n)
	d.total += uint64(c.n)
}

// appendIDs writes message ids.
func appendIDs(dst []byte, ids []seenID) []byte {
	for i := range ids {
		dst = appendText(dst, ids[i].id)
		dst = binary.AppendUvarint(dst, uint64(ids[i].seq))
		dst = binary.AppendUvarint(dst, uint64(ids[i].time))
	}
	return dst
}

func decodeIDs(b []byte) (ids []seenID, ok bool) {
	in := reader{b: b, ok: true}
	for in.ok && len(in.b) > 0 {
		e := seenID{id: in.text()}
		e.seq, e.time = topics.Sequence(in.uvarint()), topics.Nanos(in.uvarint())
		ids = append(ids, e)
	}
	return ids, in.ok
}
