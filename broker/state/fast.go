package state

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// A fast batch (ADR-50, allow_batched) is a stream of messages of one publisher
// that are acknowledged together, every so many, with a PubAck only at its end. The
// publisher numbers them in the reply subject; a number left out is a gap, which
// the batch either lives with or ends at. Where it must not go on after a failure,
// no message may be stored behind one that was refused: those in one entry are a
// chain, and while an entry is under way, what comes next is held back.

// fastSuffix ends the reply subjects of fast batches:
//
//	<prefix>.<id>.<acks every>.<ok|fail>.<place>.<operation>.$FI
var fastSuffix = []byte(".$FI")

// The operations of a fast batch.
const (
	fastStart = iota
	fastAppend
	fastCommit
	fastEnd // commits without being a message
	fastPing
)

// fastEvery is how many messages of a fast batch one acknowledgement covers at
// most, and about how many those of all batches of a topic together.
const fastEvery = 500

// fastOp is what a reply subject says.
type fastOp struct {
	id    string
	every uint16
	gapOK bool
	place uint64
	op    int
}

// parseFast reads a reply subject that ends in fastSuffix.
func parseFast(reply string) (o fastOp, ok bool) {
	parts := strings.Split(strings.TrimSuffix(reply, string(fastSuffix)), ".")
	n := len(parts)
	if n < 6 {
		return o, false
	}
	parts = parts[n-5:]
	var err error
	if o.op, err = strconv.Atoi(parts[4]); err != nil || o.op < fastStart || o.op > fastPing {
		return o, false
	}
	if o.place, err = strconv.ParseUint(parts[3], 10, 64); err != nil || o.place == 0 || o.place == math.MaxUint64 {
		return o, false
	}
	switch {
	case o.place == 1 && (o.op == fastEnd || o.op == fastAppend), o.place != 1 && o.op == fastStart:
		return o, false
	case parts[2] != "ok" && parts[2] != "fail":
		return o, false
	}
	o.gapOK = parts[2] == "ok"
	every, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || every <= 0 {
		every = 10
	}
	o.every = uint16(min(every, math.MaxUint16))
	o.id = parts[0]
	return o, o.id != ""
}

// fast is a fast batch under way. Guarded by the queue's mu.
type fast struct {
	key     batchKey
	topic   *Topic
	account *front.Account
	node    string // its publisher's
	gapOK   bool
	most    uint16 // every is at most this: the publisher's wish
	every   uint16 // an acknowledgement comes every so many messages

	last   uint64 // place of the last message
	stored uint64 // up to here all is settled
	acked  uint64 // the last place acknowledged
	seq    topics.Sequence
	reply  string // of the last message settled

	pending   int // proposed or in the open batch
	held      []heldMessage
	serial    uint64 // of the open batch that has its newest messages
	chain     uint32 // its number in there
	committed bool
	until     topics.Nanos
}

// heldMessage waits for what is under way of its batch.
type heldMessage struct {
	record []byte
	reply  string
	place  uint64
}

// fastBatches are the fast batches under way.
type fastBatches struct {
	limits BatchLimits
	counts *batchCounts
	open   map[batchKey]*fast
	per    map[topics.TopicID]int
	held   int // bytes held back
}

func (s *fastBatches) remove(f *fast) {
	if s.open[f.key] != f {
		return
	}
	delete(s.open, f.key)
	if s.per[f.key.topic]--; s.per[f.key.topic] == 0 {
		delete(s.per, f.key.topic)
	}
	s.release(f)
	s.counts.fast.Add(-1)
}

// release forgets what a batch holds back.
func (s *fastBatches) release(f *fast) {
	for _, h := range f.held {
		s.held -= len(h.record)
	}
	f.held = nil
}

// sweep forgets the batches nothing came for.
func (s *fastBatches) sweep(now topics.Nanos) (next topics.Nanos) {
	for _, f := range s.open {
		switch {
		case f.topic.Gone() || f.until <= now && f.pending == 0 && len(f.held) == 0:
			s.remove(f)
		case f.until > now && (next == 0 || f.until < next):
			next = f.until
		}
	}
	return next
}

func (s *fastBatches) drop() {
	for _, f := range s.open {
		s.remove(f)
	}
}

// pace returns how many messages one acknowledgement of a batch may cover.
func (s *fastBatches) pace(f *fast) uint16 {
	return min(uint16(max(fastEvery/max(s.per[f.key.topic], 1), 1)), f.most)
}

func (s *fastBatches) begin(t *Topic, m *front.Captured, node string, o *fastOp) (*fast, *topics.Fault) {
	if s.per[t.id] >= s.limits.FastPerTopic {
		return nil, faultFastInFlight
	}
	if s.counts.fast.Add(1) > int64(s.limits.FastTotal) {
		s.counts.fast.Add(-1)
		return nil, faultFastInFlight
	}
	if s.open == nil {
		s.open, s.per = map[batchKey]*fast{}, map[topics.TopicID]int{}
	}
	f := &fast{key: batchKey{t.id, o.id}, topic: t, account: m.Account, node: node, gapOK: o.gapOK, most: o.every}
	s.open[f.key] = f
	s.per[t.id]++
	if f.every = min(fastEvery, f.most); s.per[t.id] > 1 {
		f.every = 1 // others are at it: this one has to speed up by and by
	}
	return f, nil
}

// fast takes what a message with such a reply subject asks for, or says why not.
// The queue's mu is held.
func (q *queue) fast(t *Topic, m *front.Captured, node string) *topics.Fault {
	cfg := t.Config()
	switch {
	case cfg.Sealed:
		return faultSealed
	case cfg.MaxMsgSize > 0 && len(m.Header)+len(m.Payload) > int(cfg.MaxMsgSize):
		return faultTooBig
	case !cfg.AllowBatched:
		return faultFastDisabled
	}
	reply := string(m.Reply)
	o, ok := parseFast(reply)
	if !ok {
		return faultFastPattern
	}
	if len(o.id) > batchIDMax {
		return faultFastID
	}
	s := &q.fasts
	f := s.open[batchKey{t.id, o.id}]
	if f == nil {
		if o.place != 1 || o.op == fastPing {
			return faultFastUnknown
		}
		var fault *topics.Fault
		if f, fault = s.begin(t, m, node, &o); fault != nil {
			return fault
		}
		q.nudge()
	}
	if !jsapi.LevelMet(m.Header) {
		s.remove(f)
		return jsapi.ErrRequiredAPILevel
	}
	f.until = q.now() + topics.Nanos(s.limits.Idle)
	if o.op == fastPing {
		q.fastPing(f, &o, reply)
		return nil
	}
	if f.committed {
		return nil // the PubAck is under way
	}
	if o.place != f.last+1 {
		q.tell(t, f.account, f.node, reply, gapBody(f.last+1, o.place))
		if !f.gapOK || o.place <= f.last {
			f.committed, f.reply = true, reply
			q.fastDone(f)
			return nil
		}
	}
	if o.op == fastEnd {
		if o.place > f.last+1 {
			f.last = o.place - 1
		}
		f.committed, f.reply = true, reply
		q.fastDone(f)
		return nil
	}
	f.last = o.place
	f.committed = o.op == fastCommit
	if o.place == 1 && !f.committed {
		q.tell(t, f.account, f.node, reply, flowBody(0, f.every))
	}
	p := topics.Publish{Topic: t.id, Subject: t.mapped(m.Subject), Header: m.Header, Payload: m.Payload}
	if f.waits(q) {
		record := topics.AppendPublish(nil, &p)
		f.held = append(f.held, heldMessage{record, reply, o.place})
		s.held += len(record)
		return nil
	}
	q.fastPublish(f, reply, o.place, func(dst []byte) []byte { return topics.AppendPublish(dst, &p) })
	return nil
}

// waits tells whether the batch's next message must wait for those under way.
func (f *fast) waits(q *queue) bool {
	return !f.gapOK && (len(f.held) > 0 || f.pending > 0 && f.serial != q.serial)
}

// fastPublish puts a message of a fast batch into the open batch.
func (q *queue) fastPublish(f *fast, reply string, place uint64, record func([]byte) []byte) {
	b := q.open
	if !f.gapOK {
		if f.pending == 0 || f.serial != q.serial {
			b.chains++
			f.serial, f.chain = q.serial, b.chains
		}
		b.buf = topics.AppendRecord(b.buf, topics.RecordLink, binary.LittleEndian.AppendUint32(nil, f.chain))
		b.submits = append(b.submits, nil)
		b.records++
	}
	if f.topic.echo.Load() != nil {
		b.echoes = append(b.echoes, echo{topic: f.topic, account: f.account, publish: b.publishes, record: len(b.buf)})
	}
	b.buf = record(b.buf)
	b.wait(wait{topic: f.topic, account: f.account, publish: b.publishes, fast: f, place: place}, []byte(reply))
	b.fasts++
	b.publishes++
	b.records++
	f.pending++
}

// fastPing answers a publisher that asks how far the batch has come.
func (q *queue) fastPing(f *fast, o *fastOp, reply string) {
	f.reply = reply
	if o.place > f.last && !f.committed {
		q.tell(f.topic, f.account, f.node, reply, gapBody(f.last+1, o.place+1))
		if !f.gapOK {
			f.committed = true
			if q.fastDone(f) {
				return
			}
		} else {
			f.last = o.place
			f.settled()
			if q.fastFlow(f) {
				return
			}
		}
	}
	q.tell(f.topic, f.account, f.node, reply, flowBody(f.acked, f.every))
}

// settled notes that nothing of the batch is under way: its places so far are
// settled, those of gaps too.
func (f *fast) settled() {
	if f.pending == 0 && len(f.held) == 0 {
		f.stored = f.last
	}
}

// fastFlow acknowledges what has been settled since the last time, when it is
// enough, and tells whether it was.
func (q *queue) fastFlow(f *fast) bool {
	every := uint64(f.every)
	if f.stored < f.acked+every {
		return false
	}
	f.acked += (f.stored - f.acked) / every * every
	switch most := q.fasts.pace(f); {
	case f.every < most:
		f.every = min(f.every*2, most)
	case f.every > most:
		f.every = max(f.every/2, most)
	}
	q.tell(f.topic, f.account, f.node, f.reply, flowBody(f.acked, f.every))
	return true
}

// fastDone ends a committed batch of which nothing is under way any more, and
// tells whether it did.
func (q *queue) fastDone(f *fast) bool {
	f.settled()
	if !f.committed || f.pending > 0 || len(f.held) > 0 {
		return false
	}
	q.fasts.remove(f)
	body := appendPubAck(nil, f.topic, q.domain, &topics.PublishResult{Sequence: f.seq})
	q.tell(f.topic, f.account, f.node, f.reply, appendBatchAck(body, &batchAck{f.key.id, f.last}))
	return true
}

// fastAnswered takes note of what became of the messages of fast batches in b, and
// tells their publishers. It runs on the queue's goroutine.
func (q *queue) fastAnswered(b *batch, res *results, err error) {
	replies := string(b.replies)
	q.mu.Lock()
	var settled []*fast
	for i := range b.waits {
		w := &b.waits[i]
		if w.fast == nil {
			continue
		}
		f := w.fast
		f.pending--
		f.reply = replies[w.reply : w.reply+w.length]
		switch {
		case err == nil:
			q.fastResult(f, w.place, &res.publishes[w.publish])
		case errors.Is(err, replication.ErrOutcomeUnknown):
			q.fasts.remove(f) // whether it is stored isn't known: its publisher hears nothing
		case errors.Is(err, replication.ErrNoSpace):
			q.fastResult(f, w.place, &topics.PublishResult{Fault: faultNoSpace})
		case errors.Is(err, replication.ErrBusy), errors.Is(err, replication.ErrNotLeader):
			q.fastResult(f, w.place, &topics.PublishResult{Fault: faultUnavailable})
		default:
			q.fasts.remove(f) // whether it is stored isn't known: its publisher hears nothing
		}
		if len(settled) == 0 || settled[len(settled)-1] != f {
			settled = append(settled, f)
		}
	}
	for _, f := range settled {
		if q.fasts.open[f.key] != f {
			continue
		}
		if f.pending == 0 && len(f.held) > 0 && !q.closed {
			held := f.held
			q.fasts.release(f)
			for _, h := range held {
				q.fastPublish(f, h.reply, h.place, func(dst []byte) []byte { return append(dst, h.record...) })
			}
			q.proposeMaybeLocked()
		}
		if !q.fastDone(f) {
			q.fastFlow(f)
		}
	}
	q.room.Broadcast()
	tells := q.tells
	q.tells = nil
	q.mu.Unlock()
	q.teller.send(tells)
}

// fastResult takes note of one message's result.
func (q *queue) fastResult(f *fast, place uint64, r *topics.PublishResult) {
	if q.fasts.open[f.key] != f {
		return // given up meanwhile
	}
	switch {
	case r.Fault == nil:
		if !r.Duplicate || f.seq == 0 {
			f.seq = r.Sequence
		}
		f.stored = max(f.stored, place)
		return
	case r.Fault == faultChain:
		return
	}
	if !f.gapOK && place == 1 && f.last == 1 {
		q.fasts.remove(f)
		q.tell(f.topic, f.account, f.node, f.reply, appendPubAck(nil, f.topic, "", r))
		return
	}
	q.tell(f.topic, f.account, f.node, f.reply, errorBody(place, r.Fault))
	switch {
	case !f.gapOK: // it ends here
		q.fasts.release(f)
		f.last, f.committed = place-1, true
	case f.committed && place == f.last:
		f.last--
	default:
		f.stored = max(f.stored, place)
	}
}

func flowBody(place uint64, every uint16) []byte {
	b := strconv.AppendUint([]byte(`{"type":"ack","seq":`), place, 10)
	return append(strconv.AppendUint(append(b, `,"msgs":`...), uint64(every), 10), '}')
}

func gapBody(expected, got uint64) []byte {
	b := strconv.AppendUint([]byte(`{"type":"gap","last_seq":`), expected, 10)
	return append(strconv.AppendUint(append(b, `,"seq":`...), got, 10), '}')
}

func errorBody(place uint64, f *topics.Fault) []byte {
	b := strconv.AppendUint([]byte(`{"type":"err","seq":`), place, 10)
	return append(appendFault(append(b, `,"error":`...), f), '}')
}
