package delivery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/subject"
)

// fakeTopic is a topic in memory with the replicated copies of its consumers.
type fakeTopic struct {
	mu        sync.RWMutex
	id        topics.TopicID
	cfg       topics.Config
	msgs      []topics.Message // Sequence 0: removed
	consumers map[string]*consumer.Consumer
	lastID    topics.ConsumerID
	acked     []topics.Sequence
	reads     atomic.Int64
}

func (t *fakeTopic) ID() topics.TopicID    { return t.id }
func (t *fakeTopic) Account() string       { return "A" }
func (t *fakeTopic) Config() topics.Config { return t.cfg }

func (t *fakeTopic) Bounds() (first, last topics.Sequence) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.bounds()
}

func (t *fakeTopic) bounds() (first, last topics.Sequence) {
	last = topics.Sequence(len(t.msgs))
	for first = 1; first <= last && t.msgs[first-1].Sequence == 0; first++ {
	}
	return first, last
}

func (t *fakeTopic) Next(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for s := max(from, 1); int(s) <= len(t.msgs); s++ {
		if m := &t.msgs[s-1]; m.Sequence != 0 && f.Match(m.Subject) {
			return s, true
		}
	}
	return 0, false
}

func (t *fakeTopic) Prev(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for s := min(from, topics.Sequence(len(t.msgs))); s >= 1; s-- {
		if m := &t.msgs[s-1]; m.Sequence != 0 && f.Match(m.Subject) {
			return s, true
		}
	}
	return 0, false
}

func (t *fakeTopic) Count(f *topics.Filter, from topics.Sequence) (n uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if f == nil {
		return uint64(len(t.msgs)) + 1 - uint64(max(from, 1))
	}
	for s := max(from, 1); int(s) <= len(t.msgs); s++ {
		if m := &t.msgs[s-1]; m.Sequence != 0 && f.Match(m.Subject) {
			n++
		}
	}
	return n
}

func (t *fakeTopic) LastPerSubject(f *topics.Filter) (out []topics.Sequence) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	last := map[string]topics.Sequence{}
	for _, m := range t.msgs {
		if m.Sequence != 0 && f.Match(m.Subject) {
			last[m.Subject] = m.Sequence
		}
	}
	for _, s := range last {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func (t *fakeTopic) SequenceAt(at topics.Nanos) topics.Sequence {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, m := range t.msgs {
		if m.Sequence != 0 && m.Time >= at {
			return m.Sequence
		}
	}
	return topics.Sequence(len(t.msgs) + 1)
}

func (t *fakeTopic) Load(seq topics.Sequence) (topics.Message, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if seq < 1 || int(seq) > len(t.msgs) || t.msgs[seq-1].Sequence == 0 {
		return topics.Message{}, errors.New("not found")
	}
	return t.msgs[seq-1], nil
}

func (t *fakeTopic) Read(f *topics.Filter, from topics.Sequence, limit, maxBytes int, dst []topics.Message) ([]topics.Message, topics.Sequence, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.reads.Add(1)
	n := 0
	s := max(from, 1)
	for ; int(s) <= len(t.msgs) && n < limit && maxBytes > 0; s++ {
		if m := &t.msgs[s-1]; m.Sequence != 0 && f.Match(m.Subject) {
			dst = append(dst, *m)
			maxBytes -= len(m.Payload)
			n++
		}
	}
	return dst, s, nil
}

func (t *fakeTopic) Consumer(name string) *consumer.Consumer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if c := t.consumers[name]; c != nil {
		return c.Clone()
	}
	return nil
}

func (t *fakeTopic) LookAt(name string, f func(*consumer.Consumer)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f(t.consumers[name])
}

func (t *fakeTopic) ConsumerNames() (names []string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for n := range t.consumers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// sent is one message or status that the engine sent.
type sent struct {
	at                         time.Time
	to, subject, reply, header string
	payload                    string
	published                  bool
}

func (s sent) status() string {
	if s.payload != "" || !strings.HasPrefix(s.header, "NATS/1.0 ") {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(s.header, "NATS/1.0 "), "\r\n")
	return line
}

// world is a fake broker around an engine: account, publishers, proposer, topic.
type world struct {
	t     *testing.T
	e     *Engine
	topic *fakeTopic

	mu       sync.Mutex
	interest map[string]bool
	watchers map[string]map[int]func(bool)
	nextID   int
	log      []sent
	deleted  []string
	refuse   error
	submits  int
	queue    chan func()
	halt     chan struct{} // the log stands still until it is closed
	lost     error         // what isn't applied yet is not going to be
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, interest: map[string]bool{}, watchers: map[string]map[int]func(bool){},
		queue: make(chan func(), 10000),
	}
	w.topic = &fakeTopic{id: 7, cfg: topics.Config{Name: "S"}, consumers: map[string]*consumer.Consumer{}}
	w.e = New(Options{
		Topic: func(id topics.TopicID) Topic {
			if id == w.topic.id {
				return w.topic
			}
			return nil
		},
		Topics:         func(f func(Topic) bool) { f(w.topic) },
		Account:        func(name string) Account { return w },
		Proposer:       w,
		DeleteConsumer: func(_ topics.TopicID, name string) { w.mu.Lock(); w.deleted = append(w.deleted, name); w.mu.Unlock() },
		Workers:        2,
	})
	go func() {
		for f := range w.queue {
			f()
		}
	}()
	t.Cleanup(func() {
		w.e.Close()
		close(w.queue)
	})
	w.e.Lead(true)
	return w
}

// Submit applies a record after a millisecond, as a log would.
func (w *world) Submit(kind topics.RecordKind, body []byte, done func(any, error)) {
	w.mu.Lock()
	w.submits++
	refuse := w.refuse
	w.mu.Unlock()
	w.queue <- func() {
		w.mu.Lock()
		halt := w.halt
		w.mu.Unlock()
		if halt != nil {
			<-halt
		}
		w.mu.Lock()
		if refuse == nil {
			refuse = w.lost
		}
		w.mu.Unlock()
		if refuse != nil {
			done(nil, refuse)
			return
		}
		id, c, rest, err := topics.ParseConsumerRecord(body)
		if err != nil || id != w.topic.id {
			panic(fmt.Sprint("bad record ", id, err))
		}
		w.topic.mu.Lock()
		for _, x := range w.topic.consumers {
			if x.ID() != c {
				continue
			}
			note := func(s topics.Sequence) { w.topic.acked = append(w.topic.acked, s) }
			switch kind {
			case topics.RecordDelivered:
				err = x.ApplyDelivered(rest, note)
			case topics.RecordLetters:
				err = x.ApplyLetters(rest, note)
			default:
				err = x.ApplyAcks(rest, note)
			}
		}
		w.topic.mu.Unlock()
		if err != nil {
			panic(err)
		}
		done(nil, nil)
	}
}

func (w *world) HasInterest(s string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interest[s]
}

func (w *world) QueueInterest(s, q string) bool { return w.HasInterest(s + " " + q) }

func (w *world) WatchInterest(s string, f func(bool)) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nextID++
	id := w.nextID
	if w.watchers[s] == nil {
		w.watchers[s] = map[int]func(bool){}
	}
	w.watchers[s][id] = f
	return func() { w.mu.Lock(); delete(w.watchers[s], id); w.mu.Unlock() }
}

func (w *world) listen(s string, on bool) {
	w.mu.Lock()
	w.interest[s] = on
	var call []func(bool)
	for _, f := range w.watchers[s] {
		call = append(call, f)
	}
	w.mu.Unlock()
	for _, f := range call {
		f(on)
	}
}

func (w *world) NewPublisher() Publisher { return &fakePublisher{w: w} }

type fakePublisher struct {
	w      *world
	staged []sent
}

func (p *fakePublisher) SetStall(bool) {}

func (p *fakePublisher) Publish(subject, reply string, header, payload []byte) bool {
	p.staged = append(p.staged, sent{at: time.Now(), to: subject, subject: subject, reply: strings.Clone(reply), header: string(header), payload: string(payload), published: true})
	return true
}

func (p *fakePublisher) Deliver(to, subject, reply string, header, payload []byte) bool {
	if p.w.HasInterest("deaf " + to) {
		return false
	}
	p.staged = append(p.staged, sent{at: time.Now(), to: to, subject: subject, reply: strings.Clone(reply), header: string(header), payload: string(payload)})
	return true
}

func (p *fakePublisher) Flush() {
	p.w.mu.Lock()
	p.w.log = append(p.w.log, p.staged...)
	p.w.mu.Unlock()
	p.staged = p.staged[:0]
}

func (w *world) publish(subjects ...string) {
	w.topic.mu.Lock()
	for _, s := range subjects {
		if !subject.IsLiteral(s) {
			w.t.Fatalf("subject %q", s)
		}
		seq := topics.Sequence(len(w.topic.msgs) + 1)
		w.topic.msgs = append(w.topic.msgs, topics.Message{
			Sequence: seq, Time: topics.Nanos(time.Now().UnixNano()), Subject: s, Payload: fmt.Appendf(nil, "m%d", seq),
		})
	}
	w.topic.mu.Unlock()
	w.e.Grown([]topics.TopicID{w.topic.id})
}

func (w *world) remove(seq topics.Sequence) {
	w.topic.mu.Lock()
	w.topic.msgs[seq-1] = topics.Message{}
	w.topic.mu.Unlock()
}

func (w *world) consumer(name string, cfg topics.ConsumerConfig) {
	if cfg.AckPolicy == "" {
		cfg.AckPolicy = topics.AckExplicit
	}
	cfg.Name = name
	if cfg.InactiveThreshold == 0 {
		cfg.Durable = name
	}
	w.topic.mu.Lock()
	w.topic.lastID++
	id := w.topic.lastID
	w.topic.mu.Unlock()
	c := consumer.New(id, name, cfg, topics.Nanos(time.Now().UnixNano()), w.topic)
	w.topic.mu.Lock()
	w.topic.consumers[name] = c
	w.topic.mu.Unlock()
	w.e.ConsumerChanged(w.topic.id, name, Created)
	w.pass(2 * firstPause)
}

func (w *world) pull(name, reply, body string) {
	w.listen(reply, true)
	if !w.e.Pull(w.topic.id, name, reply, nil, []byte(body)) {
		w.t.Fatalf("no consumer %s", name)
	}
}

// take returns what was sent to a subject since the last call, after everything
// has come to rest.
func (w *world) take(to string) (got []sent) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	rest := w.log[:0]
	for _, s := range w.log {
		if s.to == to {
			got = append(got, s)
		} else {
			rest = append(rest, s)
		}
	}
	w.log = rest
	return got
}

// brief describes messages by their payload, and statuses by their line.
func brief(list []sent) (out []string) {
	for _, s := range list {
		if st := s.status(); st != "" {
			out = append(out, st)
		} else {
			out = append(out, s.payload)
		}
	}
	return out
}

func (w *world) want(to string, want ...string) []sent {
	w.t.Helper()
	got := w.take(to)
	if !slices.Equal(brief(got), want) {
		w.t.Fatalf("to %s: %q, want %q", to, brief(got), want)
	}
	return got
}

func (w *world) ack(s sent, body, reply string) {
	w.t.Helper()
	if !w.e.Ack("A", []byte(s.reply), []byte(reply), []byte(body)) {
		w.t.Fatalf("ack %s went nowhere", s.reply)
	}
}

func (w *world) info(name string) LiveInfo {
	w.t.Helper()
	synctest.Wait()
	i, ok := w.e.Info(w.topic.id, name)
	if !ok {
		w.t.Fatalf("no info of %s", name)
	}
	return i
}

// pass lets the bubble's time pass.
func (w *world) pass(d time.Duration) { <-time.After(d) }
