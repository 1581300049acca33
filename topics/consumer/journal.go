package consumer

import (
	"encoding/binary"

	"github.com/heraldmq/herald/topics"
)

// journal collects what a live copy does, as the bodies of records.
//
// Deliveries and acknowledgements go into two bodies, the first to be applied
// before the second. That turns around what happened: an acknowledgement may
// come before a delivery of another message. It makes no difference, since each
// touches only its own message and the ack floor follows from what is pending at
// the end. The one pair that doesn't commute is a postponement and a later
// redelivery of the same message; a redelivery after a postponement therefore
// closes both bodies and begins new ones.
type journal struct {
	closed   []Record
	runs     []byte
	last     run // open: not in runs yet; count 0 if none
	expected run // after what is in runs
	ops      []byte
	lastOp   op
	nextSeq  topics.Sequence // after what is in ops
	opsAt    topics.Nanos    // base of the due times
	ackedAt  topics.Nanos
	deferred bool // ops holds a postponement
}

func (c *Consumer) journalDelivery(seq topics.Sequence, now topics.Nanos, again, parked bool) {
	j := &c.live.journal
	if again && j.deferred {
		c.closeJournal()
	}
	r := &j.last
	number := c.delivered.Consumer
	if r.count > 0 {
		if parked == r.parked && seq == r.seq+topics.Sequence(r.count) && number == r.after() && now == r.at &&
			r.count < runMost {
			r.count++
			return
		}
		j.closeRun()
	}
	*r = run{seq: seq, count: 1, number: number, at: now, parked: parked}
}

func (j *journal) closeRun() {
	r, x := &j.last, &j.expected
	if r.count == 0 {
		return
	}
	j.runs = binary.AppendVarint(j.runs, int64(r.seq-x.seq))
	if r.parked {
		j.runs = binary.AppendUvarint(j.runs, 0)
	}
	j.runs = binary.AppendUvarint(j.runs, r.count)
	j.runs = binary.AppendVarint(j.runs, int64(r.number-x.number))
	j.runs = binary.AppendVarint(j.runs, int64(r.at-x.at))
	*x = run{seq: r.seq + topics.Sequence(r.count), number: r.after(), at: r.at}
	r.count = 0
}

func (c *Consumer) journalAck(kind opKind, seq topics.Sequence, now, due topics.Nanos) {
	j := &c.live.journal
	c.floor.Time = now
	if j.lastOp.count == 0 && len(j.ops) == 0 {
		j.opsAt = now
	}
	j.ackedAt = now
	j.deferred = j.deferred || kind == opDefer
	o := &j.lastOp
	if o.count > 0 {
		if kind == o.kind && kind != opAckAll && seq == o.seq+topics.Sequence(o.count) && due == o.due &&
			o.count < opMost {
			o.count++
			return
		}
		j.closeOp()
	}
	*o = op{kind: kind, seq: seq, count: 1, due: due}
}

func (j *journal) closeOp() {
	o := &j.lastOp
	if o.count == 0 {
		return
	}
	j.ops = append(j.ops, byte(o.kind))
	j.ops = binary.AppendVarint(j.ops, int64(o.seq-j.nextSeq))
	j.ops = binary.AppendUvarint(j.ops, o.count)
	if o.kind == opDefer {
		j.ops = binary.AppendVarint(j.ops, int64(o.due-j.opsAt))
	}
	j.nextSeq = o.seq + topics.Sequence(o.count)
	o.count = 0
}

// closeJournal makes records of what was collected.
func (c *Consumer) closeJournal() {
	j := &c.live.journal
	j.closeRun()
	j.closeOp()
	if len(j.runs) > 0 {
		body := appendHeader(make([]byte, 0, len(j.runs)+12), c.epoch)
		j.closed = append(j.closed, Record{topics.RecordDelivered, append(body, j.runs...)})
	}
	if len(j.ops) > 0 {
		body := appendHeader(make([]byte, 0, len(j.ops)+24), c.epoch)
		body = binary.AppendVarint(body, int64(j.ackedAt))
		body = binary.AppendVarint(body, int64(j.opsAt-j.ackedAt))
		j.closed = append(j.closed, Record{topics.RecordAcked, append(body, j.ops...)})
	}
	*j = journal{closed: j.closed, runs: j.runs[:0], ops: j.ops[:0]}
}

// Records returns what the live copy did since the last call, in the order in
// which it must be applied, appended to dst.
func (c *Consumer) Records(dst []Record) []Record {
	c.closeJournal()
	dst = append(dst, c.live.journal.closed...)
	clear(c.live.journal.closed)
	c.live.journal.closed = c.live.journal.closed[:0]
	return dst
}

// Unrecorded tells what Records would return: acknowledgements, only deliveries,
// or nothing.
func (c *Consumer) Unrecorded() (deliveries, acks bool) {
	j := &c.live.journal
	for _, r := range j.closed {
		deliveries = deliveries || r.Kind == topics.RecordDelivered
		acks = acks || r.Kind == topics.RecordAcked
	}
	return deliveries || len(j.runs) > 0 || j.last.count > 0, acks || len(j.ops) > 0 || j.lastOp.count > 0
}
