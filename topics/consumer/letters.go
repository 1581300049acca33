package consumer

import (
	"encoding/binary"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// Dead letters leave in parcels, one after the other. A parcel is begun by a record: from
// then on every copy knows its number, where it goes and which messages are in it, so that
// whoever leads sends the same under the same number, and its topic can tell what it has
// (topics.LetterStored). It ends by another record, in one of two ways: its messages are
// given up, since the topic has it; or they are taken back, since the topic never will.
//
// Whatever comes late has no effect: numbers only rise, there is one parcel at a time, and a
// parcel is ended by its number. So a parcel that is under way is the first that its topic
// may still have to decide about: all with lower numbers have ended.

// letters is a consumer's part of that. What it holds is replaced, never changed.
type letters struct {
	number uint64 // of the last parcel
	to     topics.TopicID
	among  []Letter // its messages, in order; those that are not pending any more are none
}

// Letter is a message in a parcel, and why it is given up.
type Letter struct {
	Sequence   topics.Sequence
	Terminated bool
	Reason     string // the client's, at most LetterReasonMax bytes
}

// Parcel is a parcel of dead letters.
type Parcel struct {
	Number   uint64
	To       topics.TopicID
	Messages []Letter // in order, at most ParcelMost
}

// The bounds of a parcel.
const (
	ParcelMost      = 256
	LetterReasonMax = 1024
)

// LetterOps is what a record does, in this order; what is zero is left out. A record
// that does nothing finds out whether there is such a consumer.
type LetterOps struct {
	GiveUp   uint64  // the messages of the parcel with this number
	TakeBack uint64  // likewise; they stay pending
	Begin    *Parcel // if its number is higher than all before, and none is under way
}

// Under returns the parcel under way, with those of its messages that are pending;
// false if there is none. LastParcel returns the highest number so far.
func (c *Consumer) Under() (p Parcel, ok bool) {
	if c.letters == nil {
		return p, false
	}
	p = Parcel{Number: c.letters.number, To: c.letters.to, Messages: c.inParcel()}
	return p, len(p.Messages) > 0
}

// LastParcel returns the highest number of a parcel so far.
func (c *Consumer) LastParcel() uint64 {
	if c.letters == nil {
		return 0
	}
	return c.letters.number
}

func (c *Consumer) inParcel() (list []Letter) {
	for _, l := range c.letters.among {
		if c.pending.find(l.Sequence) != nil {
			list = append(list, l)
		}
	}
	return list
}

// The body of a letters record, in varints; a z marks the signed ones.
//
//	version u8 = 1, epoch, z time, op…
//	op      kind u8, number; if it begins a parcel: topic, count, message…
//	message sequence - previous, flags u8 (1: terminated), reason (length, bytes)
const (
	lettersGiveUp byte = iota + 1
	lettersTakeBack
	lettersBegin
)

const letterTerminated = 1

// AppendLetters appends the body of a letters record for the consumer's present epoch.
func (c *Consumer) AppendLetters(dst []byte, at topics.Nanos, ops LetterOps) []byte {
	dst = appendHeader(dst, c.epoch)
	dst = binary.AppendVarint(dst, int64(at))
	if ops.GiveUp != 0 {
		dst = binary.AppendUvarint(append(dst, lettersGiveUp), ops.GiveUp)
	}
	if ops.TakeBack != 0 {
		dst = binary.AppendUvarint(append(dst, lettersTakeBack), ops.TakeBack)
	}
	if p := ops.Begin; p != nil {
		dst = binary.AppendUvarint(append(dst, lettersBegin), p.Number)
		dst = appendMessages(dst, p.To, p.Messages)
	}
	return dst
}

func appendMessages(dst []byte, to topics.TopicID, list []Letter) []byte {
	dst = binary.AppendUvarint(dst, uint64(to))
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	var before topics.Sequence
	for _, l := range list {
		dst = binary.AppendUvarint(dst, uint64(l.Sequence-before))
		flags := byte(0)
		if l.Terminated {
			flags |= letterTerminated
		}
		dst = appendString(append(dst, flags), l.Reason)
		before = l.Sequence
	}
	return dst
}

func (p *parser) messages() (to topics.TopicID, list []Letter) {
	const what = "messages of a parcel"
	to = topics.TopicID(p.uvarint(what))
	n := p.uvarint(what)
	if n > ParcelMost {
		p.fail("too many messages of a parcel")
	}
	var seq topics.Sequence
	for range n {
		gap, flags := p.uvarint(what), p.byte(what)
		l := Letter{Sequence: seq + topics.Sequence(gap), Terminated: flags&letterTerminated != 0, Reason: string(p.bytes(what))}
		if p.err == nil && (l.Sequence <= seq || flags > letterTerminated || len(l.Reason) > LetterReasonMax) {
			p.fail("message of a parcel")
		}
		if p.err != nil {
			return 0, nil
		}
		list = append(list, l)
		seq = l.Sequence
	}
	return to, list
}

// ApplyLetters applies the body of a letters record. acked is called for each message that
// is given up thereby. It may be nil.
func (c *Consumer) ApplyLetters(body []byte, acked func(seq topics.Sequence)) error {
	p := parser{b: body}
	epoch := p.header("letters record")
	at := topics.Nanos(p.varint("letters record"))
	if p.err != nil || epoch != c.epoch {
		return p.err
	}
	for len(p.b) > 0 {
		kind := p.byte("letters op")
		number := p.uvarint("letters op")
		var to topics.TopicID
		var list []Letter
		switch kind {
		case lettersGiveUp, lettersTakeBack:
		case lettersBegin:
			to, list = p.messages()
		default:
			p.fail("letters op of unknown kind")
		}
		if p.err != nil {
			return p.err
		}
		if kind == lettersBegin {
			c.beginParcel(Parcel{number, to, list})
		} else if c.letters != nil && c.letters.number == number {
			c.endParcel(kind == lettersGiveUp, at, acked)
		}
	}
	return nil
}

func (c *Consumer) beginParcel(p Parcel) {
	if _, under := c.Under(); under || p.Number <= c.LastParcel() || !c.rules.buries {
		return
	}
	p.Messages = slices.DeleteFunc(p.Messages, func(l Letter) bool { return c.pending.find(l.Sequence) == nil })
	if len(p.Messages) > 0 {
		c.letters = &letters{number: p.Number, to: p.To, among: p.Messages}
	}
}

func (c *Consumer) endParcel(giveUp bool, at topics.Nanos, acked func(topics.Sequence)) {
	list := c.letters.among
	c.letters = &letters{number: c.letters.number, to: c.letters.to}
	if !giveUp {
		return
	}
	for _, l := range list {
		if c.settle(l.Sequence) {
			c.floor.Time = at
			if acked != nil {
				acked(l.Sequence)
			}
		}
	}
}

// resetLetters forgets the parcel under way, as nothing is pending any more.
func (c *Consumer) resetLetters() {
	if c.letters != nil {
		c.letters = &letters{number: c.letters.number, to: c.letters.to}
	}
}

// appendLetters appends the flushed state: last number, topic, messages.
func (c *Consumer) appendLetters(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, c.letters.number)
	return appendMessages(dst, c.letters.to, c.inParcel())
}

func (c *Consumer) parseLetters(p *parser) {
	l := &letters{number: p.uvarint("parcel")}
	l.to, l.among = p.messages()
	c.letters = l
}

func (c *Consumer) sameLetters(o *Consumer) bool {
	if (c.letters == nil) != (o.letters == nil) {
		return false
	}
	return c.letters == nil || c.letters.number == o.letters.number && c.letters.to == o.letters.to &&
		slices.Equal(c.inParcel(), o.inParcel())
}
