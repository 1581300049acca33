package consumer

import (
	"encoding/binary"
	"fmt"

	"github.com/heraldmq/herald/topics"
)

// The bodies of the two records. Integers are varints; a z marks the signed
// (zigzag) ones.
//
//	delivered  version u8 = 1, epoch, run…
//	run        z first sequence - expected, count, z first number - expected,
//	           z time - previous time; in front of the count a 0 when they are parked:
//	           the number, then, is that of the last delivery, for all of them
//	acked      version u8 = 1, epoch, z time of the last op, z base - that time, op…
//	op         kind u8, z first sequence - expected, count,
//	           for a postponement z due - base
//
// A run is of deliveries with consecutive sequences, consecutive numbers and one
// time; an op is of consecutive sequences. Expected is what follows the run or op
// before (0 at first), so that most differences take one byte.
const recordVersion = 1

// opKind says what an op does to its messages.
type opKind uint8

const (
	opAck     opKind = iota + 1 // acknowledged
	opAckAll                    // acknowledged, with all before it
	opTerm                      // terminated: as acknowledged
	opAbandon                   // no longer pending; the topic keeps it
	opDefer                     // to be delivered again when due
)

// run is a run of deliveries.
type run struct {
	seq    topics.Sequence
	count  uint64
	number uint64
	at     topics.Nanos
	parked bool
}

// after is the number that is expected behind it.
func (r *run) after() uint64 {
	if r.parked {
		return r.number
	}
	return r.number + r.count
}

// op is what happened to consecutive messages.
type op struct {
	kind  opKind
	seq   topics.Sequence
	count uint64
	due   topics.Nanos // opDefer
}

// appendHeader starts a body.
func appendHeader(dst []byte, epoch uint64) []byte {
	dst = append(dst, recordVersion)
	return binary.AppendUvarint(dst, epoch)
}

// parser reads varints and remembers the first thing that went wrong.
type parser struct {
	b   []byte
	err error
}

func (p *parser) fail(what string) {
	if p.err == nil {
		p.err = fmt.Errorf("%w: %s with %d bytes left", ErrBadRecord, what, len(p.b))
	}
	p.b = nil
}

func (p *parser) byte(what string) byte {
	if len(p.b) == 0 {
		p.fail(what)
		return 0
	}
	v := p.b[0]
	p.b = p.b[1:]
	return v
}

func (p *parser) uvarint(what string) uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail(what)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) varint(what string) int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.fail(what)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) bytes(what string) []byte {
	n := p.uvarint(what)
	if n > uint64(len(p.b)) {
		p.fail(what)
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}

func (p *parser) header(what string) (epoch uint64) {
	if v := p.byte(what); p.err == nil && v != recordVersion {
		p.err = fmt.Errorf("%w: %s of version %d, this program reads %d", ErrBadRecord, what, v, recordVersion)
	}
	return p.uvarint(what)
}

// The longest run and op: what a record may make Apply do at most.
const (
	runMost = 1 << 16
	opMost  = 1 << 22
)

func (p *parser) count(what string, most uint64) uint64 {
	n := p.uvarint(what)
	if n == 0 || n > most {
		p.fail(what)
		return 0
	}
	return n
}

// ApplyDelivered applies the body of a delivered record. acked is called for
// each message that thereby needs nothing more: with ack policy "none",
// every message. It may be nil.
func (c *Consumer) ApplyDelivered(body []byte, acked func(seq topics.Sequence)) error {
	p := parser{b: body}
	epoch := p.header("delivered record")
	if p.err != nil || epoch != c.epoch {
		return p.err
	}
	var r run
	for len(p.b) > 0 {
		r.seq += topics.Sequence(p.varint("run"))
		r.parked = len(p.b) > 0 && p.b[0] == 0
		if r.parked {
			p.byte("run")
		}
		r.count = p.count("run", runMost)
		r.number += uint64(p.varint("run"))
		r.at += topics.Nanos(p.varint("run"))
		if p.err != nil {
			return p.err
		}
		if r.parked {
			c.delivered.Consumer = r.number
			for range r.count {
				c.park(r.seq, r.at)
				r.seq++
			}
			continue
		}
		c.delivered.Consumer = r.number - 1
		for range r.count {
			if _, fresh := c.deliver(r.seq, r.at); fresh && acked != nil && c.rules.ack == ackNone {
				acked(r.seq)
			}
			r.seq++
			r.number++
		}
	}
	return nil
}

// ApplyAcks applies the body of an acked record. acked is called for each
// message that was pending and is now acknowledged or terminated. It may be nil.
func (c *Consumer) ApplyAcks(body []byte, acked func(seq topics.Sequence)) error {
	p := parser{b: body}
	epoch := p.header("acked record")
	at := topics.Nanos(p.varint("acked record"))
	base := at + topics.Nanos(p.varint("acked record"))
	if p.err != nil || epoch != c.epoch {
		return p.err
	}
	c.floor.Time = at
	var o op
	for len(p.b) > 0 {
		o.kind = opKind(p.byte("op"))
		o.seq += topics.Sequence(p.varint("op"))
		o.count = p.count("op", opMost)
		if o.kind == opDefer {
			o.due = base + topics.Nanos(p.varint("op"))
		}
		if o.kind < opAck || o.kind > opDefer {
			p.fail("op of unknown kind")
		}
		if p.err != nil {
			return p.err
		}
		c.applyOp(o, acked)
		o.seq += topics.Sequence(o.count)
	}
	return nil
}

func (c *Consumer) applyOp(o op, acked func(seq topics.Sequence)) {
	if o.kind == opAckAll {
		c.settleThrough(o.seq, acked)
		return
	}
	for seq := o.seq; seq < o.seq+topics.Sequence(o.count); seq++ {
		switch {
		case o.kind == opDefer:
			c.postpone(seq, o.due)
		case c.settle(seq) && o.kind != opAbandon && acked != nil:
			acked(seq)
		}
	}
}
