package delivery

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/heraldmq/herald/topics"
)

// ackSubject is what the subject of an acknowledgement says:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>
//
// and the form of version 2 with domain and account hash after ACK and any number
// of tokens at the end, which a client may send after a rolling upgrade.
type ackSubject struct {
	stream, consumer []byte
	attempt          uint64
	seq              topics.Sequence
	number           uint64
}

// parseAck reads an ack subject without allocating.
func parseAck(subject []byte) (a ackSubject, ok bool) {
	rest, found := bytes.CutPrefix(subject, []byte("$JS.ACK."))
	if !found {
		return a, false
	}
	switch n := bytes.Count(rest, []byte{'.'}); {
	case n == 6: // 9 tokens
	case n >= 8: // 11 or more
		_, rest = token(rest)
		_, rest = token(rest)
	default:
		return a, false
	}
	a.stream, rest = token(rest)
	a.consumer, rest = token(rest)
	t, rest := token(rest)
	a.attempt, ok = number(t)
	if !ok {
		return a, false
	}
	t, rest = token(rest)
	seq, ok := number(t)
	if !ok {
		return a, false
	}
	a.seq = topics.Sequence(seq)
	t, _ = token(rest)
	a.number, ok = number(t)
	return a, ok && len(a.stream) > 0 && len(a.consumer) > 0
}

// token cuts the first token off.
func token(b []byte) (first, rest []byte) {
	i := bytes.IndexByte(b, '.')
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i+1:]
}

func number(b []byte) (n uint64, ok bool) {
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// acksWantedMost bounds the acknowledgements of one consumer that wait for an
// answer. Those over it count, but are not answered: their senders ask again.
const acksWantedMost = 16384

// Ack takes what an account's client published to $JS.ACK.>. When reply is set
// the sender is answered once the acknowledgement is durable. It reports false
// when the consumer isn't here, or no more: another leader has it by now, or has soon. The
// bytes are the caller's again on return.
func (e *Engine) Ack(account string, subject, reply, body []byte) bool {
	a, ok := parseAck(subject)
	if !ok {
		return false
	}
	r := e.readerByName(account, a.stream, a.consumer)
	if r == nil {
		return false
	}
	return r.acknowledge(&a, reply, body)
}

// FlowControl takes what was published to $JS.FC.>: a push client has caught up.
func (e *Engine) FlowControl(account string, subject []byte) bool {
	rest, found := bytes.CutPrefix(subject, []byte("$JS.FC."))
	if !found {
		return false
	}
	stream, rest := token(rest)
	name, _ := token(rest)
	r := e.readerByName(account, stream, name)
	if r == nil {
		return false
	}
	r.mu.Lock()
	seq, ok := r.push.caughtUp(subject)
	if ok && r.cfg.AckPolicy == topics.AckFlowControl {
		r.c.Ack(seq, e.o.Now())
		r.recordAcks(e.o.Now(), false)
	}
	r.mu.Unlock()
	if ok {
		r.wake()
	}
	return true
}

var (
	verbAck      = []byte("+ACK")
	verbOK       = []byte("+OK")
	verbNak      = []byte("-NAK")
	verbProgress = []byte("+WPI")
	verbNext     = []byte("+NXT")
	verbTerm     = []byte("+TERM")
)

// acknowledge does what the body of an acknowledgement says; false when the consumer is on
// its way out here.
func (r *reader) acknowledge(a *ackSubject, reply, body []byte) bool {
	now := r.e.o.Now()
	r.mu.Lock()
	r.active = now
	if r.ending.Load() != nil {
		r.mu.Unlock()
		return false
	}
	if a.seq > r.c.Delivered().Stream {
		r.mu.Unlock() // never delivered by this leader: it will be, again
		return true
	}
	room := r.c.Room()
	wake := false
	switch {
	case len(body) == 0 || bytes.Equal(body, verbAck) || bytes.Equal(body, verbOK):
		r.settle(a, now)
	case bytes.HasPrefix(body, verbNext):
		r.settle(a, now)
		r.mu.Unlock()
		if len(reply) > 0 {
			r.request(string(reply), nil, bytes.TrimSpace(body[len(verbNext):]))
		}
		r.mu.Lock()
		reply = nil // it is the inbox of the next message
	case bytes.HasPrefix(body, verbNak):
		wake = r.nak(a, body[len(verbNak):], now)
	case bytes.Equal(body, verbProgress):
		r.c.InProgress(a.seq, now)
	case bytes.HasPrefix(body, verbTerm):
		wake = r.term(a, body[len(verbTerm):], now)
	}
	// What is not a verb changes nothing and is answered all the same.
	if len(reply) > 0 && r.dying(a.seq) {
		r.answerBuried(a.seq, reply)
		reply = nil
	}
	if len(reply) > 0 && len(r.acksWanted) < acksWantedMost {
		r.acksWanted = append(r.acksWanted, string(reply))
	}
	r.recordAcks(now, len(reply) > 0)
	if room == 0 && r.c.Room() > 0 || r.overflowing() {
		wake = true
	}
	wake = wake || len(r.outbox) > 0 || r.order.Load() != nil && r.c.HasRedelivery()
	r.mu.Unlock()
	if wake {
		r.wake()
	}
	return true
}

// overflowing tells whether requests wait for the number of pending
// acknowledgements to change.
func (r *reader) overflowing() bool {
	return r.pull.policy == priorityOverflow && r.pull.waiting.len() > 0
}

func (r *reader) settle(a *ackSubject, now topics.Nanos) {
	if r.sampled() {
		if at, _, ok := r.c.PendingAt(a.seq); ok {
			r.measureAck(a, at, now)
		}
	}
	r.c.Ack(a.seq, now)
}

// nak reads " {"delay":ns}" or " <duration>".
func (r *reader) nak(a *ackSubject, rest []byte, now topics.Nanos) bool {
	var delay time.Duration
	if rest = bytes.TrimSpace(rest); len(rest) > 0 {
		if rest[0] == '{' {
			var o struct {
				Delay time.Duration `json:"delay"`
			}
			if json.Unmarshal(rest, &o) == nil {
				delay = o.Delay
			}
		} else if d, err := time.ParseDuration(string(rest)); err == nil {
			delay = d
		}
	}
	if !r.c.Nak(a.seq, delay, now) {
		return false
	}
	r.adviseRefused("CONSUMER.MSG_NAKED", "nak", a, "", now)
	if at, ok := r.c.NextDeadline(); ok {
		r.e.clock.set(r, at)
	}
	return delay <= 0
}

func (r *reader) term(a *ackSubject, rest []byte, now topics.Nanos) bool {
	reason := string(bytes.TrimSpace(rest))
	if r.c.Buries() {
		if !r.c.Terminate(a.seq, reason) {
			return false
		}
	} else if !r.c.Term(a.seq, now) {
		return false
	}
	r.adviseRefused("CONSUMER.MSG_TERMINATED", "terminated", a, reason, now)
	return true
}

// recordAcks has what the live copy did proposed soon, or now. The caller holds
// r.mu.
func (r *reader) recordAcks(now topics.Nanos, atOnce bool) {
	if atOnce {
		r.e.recorder.add(r, now)
		return
	}
	if _, acks := r.c.Unrecorded(); acks {
		r.e.recorder.add(r, now+topics.Nanos(lingerAcks))
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
