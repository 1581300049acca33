package consumer

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/topics"
)

// The flushed state. Integers are varints, z marks the signed ones.
//
//	version u8 = 1, id, name, z created, config (length, bytes), epoch,
//	z paused until, delivered consumer, delivered stream, z delivered time,
//	floor consumer, floor stream, z floor time,
//	count of pending, pending…, count of initial, [resume, initial…]
//	pending  sequence - previous, z number - previous, z last delivery - previous,
//	         z due - last delivery (+1 unless negative; 0: never), attempts
//	initial  sequence - previous
//
// With version 2 follow the last parcel's number, its topic, the count of its messages
// that are pending, and these as in a letters record. Consumers without are written in 1.
const (
	stateVersion = 1
	stateLetters = 2
)

// AppendBinary appends the replicated state, with a version and without a
// checksum: the caller's container has one.
func (c *Consumer) AppendBinary(dst []byte) ([]byte, error) {
	if c.letters == nil {
		return c.appendState(append(dst, stateVersion)), nil
	}
	return c.appendLetters(c.appendState(append(dst, stateLetters))), nil
}

func (c *Consumer) appendState(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.id))
	dst = appendString(dst, c.name)
	dst = binary.AppendVarint(dst, int64(c.created))
	dst = appendString(dst, c.config)
	dst = binary.AppendUvarint(dst, c.epoch)
	dst = binary.AppendVarint(dst, int64(c.rules.pausedUntil))
	for _, p := range []Position{c.delivered, c.floor} {
		dst = binary.AppendUvarint(dst, p.Consumer)
		dst = binary.AppendUvarint(dst, uint64(p.Stream))
		dst = binary.AppendVarint(dst, int64(p.Time))
	}
	dst = binary.AppendUvarint(dst, uint64(c.NumAckPending()))
	var last entry
	c.pending.each(func(e *entry) bool {
		dst = binary.AppendUvarint(dst, uint64(e.seq-last.seq))
		dst = binary.AppendVarint(dst, int64(e.number-last.number))
		dst = binary.AppendVarint(dst, int64(e.at-last.at))
		if e.due == noDue {
			dst = binary.AppendVarint(dst, 0)
		} else if d := int64(e.due - e.at); d >= 0 {
			dst = binary.AppendVarint(dst, d+1)
		} else {
			dst = binary.AppendVarint(dst, d)
		}
		dst = binary.AppendUvarint(dst, uint64(e.attempts))
		last = *e
		return true
	})
	if c.initial == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.initial.seqs)))
	dst = binary.AppendUvarint(dst, uint64(c.initial.resume))
	var prev topics.Sequence
	for _, s := range c.initial.seqs {
		dst = binary.AppendUvarint(dst, uint64(s-prev))
		prev = s
	}
	return dst
}

// Unmarshal reads what AppendBinary wrote. The Consumer keeps nothing of data.
func Unmarshal(data []byte) (*Consumer, error) {
	p := parser{b: data}
	version := p.byte("consumer state")
	if p.err == nil && version != stateVersion && version != stateLetters {
		return nil, fmt.Errorf("%w: state of version %d, this program reads up to %d", ErrBadRecord, version, stateLetters)
	}
	c := &Consumer{}
	c.id = topics.ConsumerID(p.uvarint("consumer"))
	c.name = string(p.bytes("consumer"))
	c.created = topics.Nanos(p.varint("consumer"))
	config := string(p.bytes("consumer"))
	c.epoch = p.uvarint("consumer")
	paused := topics.Nanos(p.varint("consumer"))
	if p.err != nil {
		return nil, p.err
	}
	cfg, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	c.setConfig(cfg)
	c.rules.pausedUntil = paused
	for _, pos := range []*Position{&c.delivered, &c.floor} {
		pos.Consumer = p.uvarint("position")
		pos.Stream = topics.Sequence(p.uvarint("position"))
		pos.Time = topics.Nanos(p.varint("position"))
	}
	c.parsePending(&p)
	c.parseInitial(&p)
	if version == stateLetters {
		c.parseLetters(&p)
	}
	if p.err == nil && len(p.b) > 0 {
		p.fail("consumer state goes on")
	}
	if p.err != nil {
		return nil, p.err
	}
	return c, nil
}

func (c *Consumer) parsePending(p *parser) {
	n := p.uvarint("pending")
	if n == 0 || p.err != nil {
		return
	}
	c.pending = &window{entries: make([]entry, 0, min(n, uint64(len(p.b))/5+1))}
	var e entry
	for range n {
		gap := p.uvarint("pending")
		if gap == 0 {
			p.fail("pending out of order")
		}
		e.seq += topics.Sequence(gap)
		e.number += uint64(p.varint("pending"))
		e.at += topics.Nanos(p.varint("pending"))
		switch d := topics.Nanos(p.varint("pending")); {
		case d == 0:
			e.due = noDue
		case d > 0:
			e.due = e.at + d - 1
		default:
			e.due = e.at + d
		}
		e.attempts = uint32(p.uvarint("pending"))
		if p.err != nil {
			return
		}
		if k := len(c.pending.entries); k > 0 && c.pending.entries[k-1].seq >= e.seq {
			p.fail("pending out of order")
			return
		}
		c.pending.add(e)
		if e.attempts > 1 {
			c.pending.redelivered++
		}
	}
}

func (c *Consumer) parseInitial(p *parser) {
	n := p.uvarint("initial")
	if n == 0 || p.err != nil {
		return
	}
	c.initial = &initial{resume: topics.Sequence(p.uvarint("initial"))}
	c.initial.seqs = make([]topics.Sequence, 0, min(n, uint64(len(p.b))))
	var seq topics.Sequence
	for range n {
		seq += topics.Sequence(p.uvarint("initial"))
		c.initial.seqs = append(c.initial.seqs, seq)
		if p.err != nil {
			return
		}
	}
	if !slices.IsSorted(c.initial.seqs) {
		p.fail("initial out of order")
	}
}
