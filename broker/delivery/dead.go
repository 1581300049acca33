package delivery

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// A consumer with metadata "herald.dlq.subject" gives a message up only once a copy of it
// is stored under that subject. Until then the message is pending and counts against
// max_ack_pending: a subject whose topic can't take messages stops the consumer, in the
// end, and loses nothing. Who terminates a message and asks for an answer gets it when the
// dead letter is stored.

// The headers of a dead letter.
const (
	deadPrefix   = "Herald-Dead-"
	deadWas      = deadPrefix + "Was-" // in front of headers that would act on the letter itself
	DeadReason   = deadPrefix + "Reason"
	DeadDetail   = deadPrefix + "Detail"
	DeadAttempts = deadPrefix + "Attempts"
	DeadStream   = deadPrefix + "Stream"
	DeadSequence = deadPrefix + "Sequence"
	DeadConsumer = deadPrefix + "Consumer"
	DeadSubject  = deadPrefix + "Subject"
	DeadTime     = deadPrefix + "Time" // when the message was stored
	DeadAt       = deadPrefix + "At"   // when it was given up
)

// The values of DeadReason.
const (
	ReasonMaxDeliver = "max_deliver"
	ReasonTerminated = "terminated"
)

// Burial is one dead letter.
type Burial struct {
	// ID is the same whenever this message is given up by this consumer, and different
	// from all others.
	ID      uint64
	Account string
	Subject string // where it goes
	Header  []byte
	Payload []byte

	Topic topics.TopicID // where it comes from
	// Given is the body of the RecordAcked by which the consumer gives the message up.
	Given []byte
	// Again tells that the letter may be stored already, maybe in the group that the topic of
	// the letters has left: the message was pending before this engine led, or burying it
	// failed before.
	Again bool
	// Leads tells whether the consumer is still this engine's. What follows from a
	// burial may only be forgotten while it is.
	Leads func() bool
}

// DeadStats is what became of a consumer's dead letters since the node leads.
type DeadStats struct {
	Subject   string `json:"subject"`
	Moved     uint64 `json:"moved"`
	Waiting   int    `json:"waiting"`
	Failed    uint64 `json:"failed,omitempty"`
	LastError string `json:"last_error,omitempty"`
}

// deadState is what a reader has for its dead letters. Guarded by the reader's mu.
type deadState struct {
	subject string // "": none
	under   bool   // a round is under way
	next    topics.Nanos
	pause   time.Duration
	moved   uint64
	failed  uint64
	err     string
	answers map[topics.Sequence][]string // who waits to hear that a message is terminated
	tried   map[topics.Sequence]struct{} // messages that could not be buried
	before  topics.Sequence              // what was delivered when the live copy was made
}

const (
	burialsAtOnce = 32 // of one consumer
	burialsMost   = 64 // of one engine
	burialPause   = 250 * time.Millisecond
	burialPauseTo = 15 * time.Second
	burialTimeout = 10 * time.Second
	burialSoon    = 20 * time.Millisecond
	detailMost    = 512
)

// bury begins a round of burials, if there is something to bury. The caller holds r.mu.
func (r *reader) bury(now topics.Nanos) {
	if r.c.NumDying() == 0 {
		r.dead.answers = nil
		return
	}
	if r.dead.under || now < r.dead.next || r.failed || r.e.o.Bury == nil {
		return
	}
	if !r.c.Buries() {
		r.c.DropDying(now)
		r.recordAcks(now, false)
		return
	}
	list, held := r.written(r.c.DyingAmong(nil, burialsAtOnce))
	if held { // it comes with the records that are under way; this is for when they fail
		r.dead.next = now + topics.Nanos(burialSoon)
	}
	if len(list) == 0 {
		return
	}
	subject, c := r.dead.subject, r.c
	r.dead.under = r.e.spawn(func() { r.buryAll(c, subject, list) })
}

// buryAll is a round of burials.
func (r *reader) buryAll(c *consumer.Consumer, subject string, list []consumer.Dying) {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, d := range list {
		r.e.burials <- struct{}{}
		wg.Go(func() {
			defer func() { <-r.e.burials }()
			errs[i] = r.buryOne(c, subject, d)
		})
	}
	wg.Wait()
	r.mu.Lock()
	defer r.wake()
	defer r.mu.Unlock()
	d := &r.dead
	d.under = false
	var failed error
	for i, x := range list {
		switch {
		case errs[i] != nil:
			d.failed++
			failed = errs[i]
			if d.tried == nil {
				d.tried = map[topics.Sequence]struct{}{}
			}
			d.tried[x.Sequence] = struct{}{}
		case r.c.ID() == c.ID() && r.c.Epoch() == c.Epoch():
			r.c.Buried(x.Sequence, r.e.o.Now())
			d.moved++
			delete(d.tried, x.Sequence)
			r.answer(d.answers[x.Sequence])
			delete(d.answers, x.Sequence)
		}
	}
	if failed == nil {
		d.pause, d.err = 0, ""
		return
	}
	if d.err != failed.Error() && r.ending.Load() == nil && r.e.leads.Load() {
		r.e.o.Log.Warn("A dead letter can't be stored yet; its message stays pending", "stream", r.topic.name, "consumer", r.name, "subject", subject, "error", failed)
	}
	d.err = failed.Error()
	d.pause = min(max(2*d.pause, burialPause), burialPauseTo)
	d.next = r.e.o.Now() + topics.Nanos(d.pause)
}

// buryOne stores one dead letter.
func (r *reader) buryOne(c *consumer.Consumer, subject string, d consumer.Dying) error {
	now := r.e.o.Now()
	leads := func() bool { return r.e.leads.Load() && r.ending.Load() == nil }
	r.mu.Lock()
	epoch := c.Epoch()
	_, again := r.dead.tried[d.Sequence]
	again = again || d.Sequence <= r.dead.before
	given := topics.AppendConsumerRecord(nil, r.topic.id, c.ID())
	given = append(given, c.BurialRecord(d.Sequence, now)...)
	r.mu.Unlock()
	m, err := r.topic.data.Load(d.Sequence)
	if err != nil {
		return r.buryGone(c, d, err, now)
	}
	ctx, cancel := context.WithTimeout(r.e.ctx, burialTimeout)
	defer cancel()
	return r.e.o.Bury(ctx, &Burial{
		ID: BurialID(r.topic.id, c.ID(), epoch, d.Sequence), Account: r.topic.account, Subject: subject,
		Header: r.deadHeader(&m, &d, now), Payload: m.Payload, Topic: r.topic.id, Given: given, Again: again, Leads: leads,
	})
}

// written returns the messages whose delivery is committed; held tells that there are
// others, which are proposed now. What is buried is pending in every copy until it is given
// up there: by that others know that its letter may still be asked for. The caller holds
// r.mu.
func (r *reader) written(list []consumer.Dying) (ok []consumer.Dying, held bool) {
	c := r.topic.data.Consumer(r.name)
	for _, d := range list {
		attempts := uint32(0)
		if c != nil && c.ID() == r.c.ID() && c.Epoch() == r.c.Epoch() {
			_, attempts, _ = c.PendingAt(d.Sequence)
		}
		if attempts > 0 {
			ok = append(ok, d)
			continue
		}
		held = true
	}
	if held {
		r.e.recorder.add(r, r.e.o.Now())
	}
	return ok, held
}

// Wanted returns those of the ids of burials whose messages consumers of the topic have not
// given up yet, as far as the replica knows.
func Wanted(t Topic, ids map[uint64]bool) (wanted []uint64) {
	for _, name := range t.ConsumerNames() {
		c := t.Consumer(name)
		if c == nil || !c.Buries() {
			continue
		}
		c.EachPending(func(seq topics.Sequence) bool {
			if id := BurialID(t.ID(), c.ID(), c.Epoch(), seq); ids[id] {
				wanted = append(wanted, id)
			}
			return true
		})
	}
	return wanted
}

// buryGone gives up a message that the topic no longer has.
func (r *reader) buryGone(c *consumer.Consumer, d consumer.Dying, err error, now topics.Nanos) error {
	if at, ok := r.topic.data.Next(nil, d.Sequence); ok && at == d.Sequence {
		return err // it is there, but can't be read
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c == c {
		c.Drop(d.Sequence, now)
		r.recordAcks(now, false)
	}
	return nil
}

// BurialID is the number of the dead letter of a message of a consumer in one of its epochs.
func BurialID(t topics.TopicID, c topics.ConsumerID, epoch uint64, seq topics.Sequence) uint64 {
	var b [40]byte
	copy(b[:8], "deadmail")
	for i, v := range []uint64{uint64(t), uint64(c), epoch, uint64(seq)} {
		binary.LittleEndian.PutUint64(b[8+8*i:], v)
	}
	return xxhash.Sum64(b[:])&^(1<<63) | topics.BurialProducer
}

// deadHeader returns the header block of a dead letter.
func (r *reader) deadHeader(m *topics.Message, d *consumer.Dying, now topics.Nanos) []byte {
	b := append(make([]byte, 0, len(m.Header)+512), headerLine...)
	_, rest, _ := bytes.Cut(m.Header, []byte("\r\n"))
	for len(rest) > 2 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		switch {
		case len(line) == 0 || bytes.HasPrefix(line, []byte(deadPrefix)):
			continue
		case acts(line):
			b = append(b, deadWas...)
		}
		b = append(append(b, line...), "\r\n"...)
	}
	put := func(key, value string) {
		b = append(append(append(append(b, key...), ": "...), value...), "\r\n"...)
	}
	reason := ReasonMaxDeliver
	if d.Terminated {
		reason = ReasonTerminated
	}
	put(DeadReason, reason)
	if text := oneLine(d.Reason); text != "" {
		put(DeadDetail, text)
	}
	put(DeadAttempts, strconv.FormatUint(uint64(d.Attempts), 10))
	put(DeadStream, r.topic.name)
	put(DeadSequence, strconv.FormatUint(uint64(m.Sequence), 10))
	put(DeadConsumer, r.name)
	put(DeadSubject, m.Subject)
	put(DeadTime, time.Unix(0, int64(m.Time)).UTC().Format(time.RFC3339Nano))
	put(DeadAt, time.Unix(0, int64(now)).UTC().Format(time.RFC3339Nano))
	return append(b, "\r\n"...)
}

// acts tells whether a header line changes how a message is stored.
func acts(line []byte) bool {
	for _, prefix := range []string{
		"Nats-Schedule", "Nats-Expected-", "Nats-Msg-Id:", "Nats-Rollup:", "Nats-TTL:", "Nats-Incr:", "Nats-Batch-",
	} {
		if bytes.HasPrefix(line, []byte(prefix)) {
			return true
		}
	}
	return false
}

func oneLine(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > detailMost {
		s = strings.ToValidUTF8(s[:detailMost], "")
	}
	return strings.TrimSpace(s)
}

// dying tells whether a message waits to be buried. The caller holds r.mu.
func (r *reader) dying(seq topics.Sequence) bool { return r.c.Dies(seq) }

// answerBuried has the sender of an acknowledgement answered once the message is buried.
// The caller holds r.mu.
func (r *reader) answerBuried(seq topics.Sequence, reply []byte) {
	d := &r.dead
	if d.answers == nil {
		d.answers = map[topics.Sequence][]string{}
	}
	if len(d.answers[seq]) < 16 { // the rest ask again
		d.answers[seq] = append(d.answers[seq], string(reply))
	}
}

// deadStats are for infos. The caller holds r.mu.
func (r *reader) deadStats() *DeadStats {
	d := &r.dead
	if d.subject == "" {
		return nil
	}
	return &DeadStats{Subject: d.subject, Moved: d.moved, Waiting: r.c.NumDying(), Failed: d.failed, LastError: d.err}
}
