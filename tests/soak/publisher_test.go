package soak

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// expectation is what a publisher says must be last.
type expectation int

const (
	expectNothing expectation = iota
	expectSubject             // the last sequence of the subject
	expectTopic               // the last sequence of the topic
)

// record is what a publisher knows of a message it sent.
type record struct {
	subject string
	seq     uint64 // 0: not acknowledged
	refused bool   // for good
	brief   bool   // has a time to live
	incr    int64
}

// publisher sends numbered messages. With ids it sends each until it is answered;
// without, once.
type publisher struct {
	w         *world
	name      string
	topic     string
	subjects  []string
	ids       bool
	window    int // most messages under way
	expect    expectation
	refusable bool // the topic may be full
	counts    bool // increments counters
	brief     bool // half of the messages live for a second or two

	nc    *nats.Conn
	rng   *rand.Rand
	inbox string
	acks  chan *nats.Msg

	mu   sync.Mutex
	recs []record
	sums map[string]int64
	last map[string]uint64 // sequence by subject; "" is all
}

func (w *world) publisher(name, topic string, subjects []string, with func(*publisher)) {
	p := &publisher{w: w, name: name, topic: topic, subjects: subjects, window: 1, rng: w.random(name), sums: map[string]int64{}, last: map[string]uint64{}}
	with(p)
	w.publishers = append(w.publishers, p)
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// body returns the n-th message of a publisher.
func body(name string, n int) []byte {
	r := rand.New(rand.NewPCG(hash(name), uint64(n)))
	size := 1 + r.IntN(300)
	if r.IntN(200) == 0 {
		size = r.IntN(40 << 10)
	}
	b := fmt.Appendf(nil, "%s %d ", name, n)
	for range size/8 + 1 {
		b = strconv.AppendUint(b, r.Uint64(), 36)
	}
	return b
}

// identify returns whose message this is; ok is false when it was damaged.
func identify(data []byte) (name string, n int, ok bool) {
	first, rest, _ := bytes.Cut(data, []byte(" "))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.Atoi(string(number))
	name = string(first)
	return name, n, err == nil && bytes.Equal(data, body(name, n))
}

func (p *publisher) run() {
	p.nc, _ = p.w.connect(p.name)
	p.inbox = p.nc.NewInbox()
	p.acks = make(chan *nats.Msg, 65536)
	if _, err := p.nc.ChanSubscribe(p.inbox+".*.*", p.acks); err != nil {
		p.w.t.Error(err)
		return
	}
	for !p.w.stopped() {
		var batch []int
		for range 1 + p.rng.IntN(p.window) {
			batch = append(batch, p.next())
		}
		if p.ids && !p.counts && !p.refusable && p.expect == expectNothing && p.rng.IntN(20) == 0 {
			batch = append(batch, p.rng.IntN(len(p.recs))) // an old one again
		}
		p.deliver(batch)
		p.w.rest(p.rng, time.Duration(p.window)*time.Millisecond+2*time.Millisecond)
	}
}

// next makes another message.
func (p *publisher) next() int {
	r := record{subject: p.subjects[p.rng.IntN(len(p.subjects))], brief: p.brief && p.rng.IntN(2) == 0}
	if p.counts {
		r.incr = p.rng.Int64N(2001) - 1000
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recs = append(p.recs, r)
	return len(p.recs) - 1
}

// message builds a message anew: under the same number always the same.
func (p *publisher) message(n int) *nats.Msg {
	r := &p.recs[n]
	m := &nats.Msg{Subject: r.subject, Data: body(p.name, n), Header: nats.Header{}}
	if p.ids {
		m.Header.Set("Nats-Msg-Id", fmt.Sprintf("%s-%d", p.name, n))
	}
	if r.brief {
		m.Header.Set("Nats-TTL", strconv.Itoa(1+n%2))
	}
	if p.counts {
		m.Data = nil
		m.Header.Set("Nats-Incr", strconv.FormatInt(r.incr, 10))
	}
	switch p.expect { // one at a time: what was last before it is known
	case expectSubject:
		m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(p.last[r.subject], 10))
	case expectTopic:
		m.Header.Set("Nats-Expected-Last-Sequence", strconv.FormatUint(p.last[""], 10))
	}
	return m
}

// deliver sends a batch, in order, and with ids what is not answered again, in
// order, until all is.
func (p *publisher) deliver(batch []int) {
	began := time.Now()
	waits := map[int]bool{}
	for _, n := range batch {
		waits[n] = true
	}
	for attempt := 0; ; attempt++ {
		life := p.nc.Stats().Reconnects
		for _, n := range batch {
			if !waits[n] {
				continue
			}
			m := p.message(n)
			m.Reply = fmt.Sprintf("%s.%d.%d", p.inbox, n, attempt)
			if p.nc.PublishMsg(m) != nil {
				break
			}
		}
		p.await(waits, life)
		if len(waits) == 0 || !p.ids {
			return
		}
		if time.Since(began) > 90*time.Second {
			p.w.bad("no answer", "%s: %d messages within 90 s", p.name, len(waits))
			return
		}
	}
}

// await takes answers until all have come, the connection is another one or the
// time is over.
func (p *publisher) await(waits map[int]bool, life uint64) {
	over := time.After(time.Second)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for len(waits) > 0 {
		select {
		case m := <-p.acks:
			p.take(m, waits)
		case <-look.C:
			if p.nc.Stats().Reconnects != life || !p.nc.IsConnected() {
				for len(p.acks) > 0 {
					p.take(<-p.acks, waits)
				}
				return
			}
		case <-over:
			return
		}
	}
}

// take enters an answer.
func (p *publisher) take(m *nats.Msg, waits map[int]bool) {
	if m.Header.Get("Status") != "" {
		return // nobody listens at the moment
	}
	var n, attempt int
	if _, err := fmt.Sscanf(strings.TrimPrefix(m.Subject, p.inbox), ".%d.%d", &n, &attempt); err != nil {
		p.w.bad("strange answer", "%s: %s", p.name, m.Subject)
		return
	}
	var ack struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Value  string `json:"val"`
		Dup    bool   `json:"duplicate"`
		Error  *struct {
			Code    int    `json:"code"`
			ErrCode int    `json:"err_code"`
			Text    string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		p.w.bad("strange answer", "%s: %q: %v", p.name, m.Data, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.recs[n]
	switch {
	case ack.Error != nil && p.refusable && ack.Error.ErrCode == 10077:
		r.refused = r.seq == 0 // another attempt may have found room
	case ack.Error != nil:
		p.w.bad("refused", "%s: message %d, attempt %d: %s", p.name, n, attempt, ack.Error.Text)
	case ack.Stream != p.topic || ack.Seq == 0:
		p.w.bad("strange answer", "%s: %s", p.name, m.Data)
	case r.seq != 0 && r.seq != ack.Seq:
		p.w.bad("two answers", "%s: message %d was answered before with %d, now with %d (duplicate %v)", p.name, n, r.seq, ack.Seq, ack.Dup)
	default:
		if p.counts && r.seq == 0 {
			p.sums[r.subject] += r.incr
			if want := strconv.FormatInt(p.sums[r.subject], 10); !ack.Dup && ack.Value != want {
				p.w.bad("wrong sum", "%s: %s is %s, want %s", p.name, r.subject, ack.Value, want)
			}
		}
		r.seq, r.refused = ack.Seq, false
		p.last[r.subject], p.last[""] = max(p.last[r.subject], r.seq), max(p.last[""], r.seq)
	}
	delete(waits, n)
}

// acked returns a random acknowledged message, 0 when there is none.
func (p *publisher) acked(rng *rand.Rand) (subject string, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.recs) == 0 {
		return "", 0
	}
	r := &p.recs[rng.IntN(len(p.recs))]
	return r.subject, r.seq
}
