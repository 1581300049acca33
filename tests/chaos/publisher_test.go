package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

// publisher sends numbered messages to a stream and remembers what it was told
// of each.
type publisher struct {
	w      *world
	name   string
	stream string
	ids    bool          // with Nats-Msg-Id
	retry  bool          // until it is acknowledged
	window int           // how many may be without an answer
	every  time.Duration // pause between messages
	size   int
	wait   time.Duration // for an answer
	timed  bool          // keeps how long answers took

	nc   *nats.Conn
	sub  *nats.Subscription
	room chan struct{}

	mu     sync.Mutex
	msgs   []sent
	acks   int
	lastOK time.Time
	gap    time.Duration // longest time without an ack
	refuse map[string]int
	took   []time.Duration

	stop chan struct{}
	done sync.WaitGroup
}

// sent is what is known of one message.
type sent struct {
	conn      uint64 // which connection carried it; not the same for all tries: 0
	seq       uint64 // acknowledged with; 0: unknown
	duplicate bool   // by an ack that said so
	refused   bool   // by an answer with an error
	open      bool   // counts against the window
	at        time.Time
	answered  chan struct{}
}

// publish starts a publisher to some nodes, or all.
func (w *world) publish(stream, name string, set func(*publisher), nodes ...*harness.Node) *publisher {
	w.t.Helper()
	p := &publisher{
		w: w, name: name, stream: stream, window: 16, every: 3 * time.Millisecond, size: 200, wait: 2 * time.Second,
		stop: make(chan struct{}), refuse: map[string]int{}, lastOK: time.Now(),
	}
	if set != nil {
		set(p)
	}
	p.room = make(chan struct{}, p.window)
	p.nc = w.connect("publisher "+name, nodes...)
	inbox := p.nc.NewInbox()
	var err error
	p.sub, err = p.nc.Subscribe(inbox+".*", p.answer)
	w.must(err)
	w.must(p.sub.SetPendingLimits(-1, -1))
	w.publishers = append(w.publishers, p)
	p.done.Go(func() { p.run(inbox) })
	return p
}

// load starts the usual publishers on a stream: with and without message ids,
// with and without a window.
func (w *world) load(stream string) {
	w.publish(stream, "ids", func(p *publisher) { p.ids = true })
	w.publish(stream, "plain", nil)
	w.publish(stream, "single", func(p *publisher) { p.window, p.every = 1, 0 })
	w.publish(stream, "again", func(p *publisher) { p.ids, p.retry, p.wait = true, true, 400*time.Millisecond })
}

func (p *publisher) run(inbox string) {
	for n := 0; ; n++ {
		select {
		case <-p.stop:
			return
		case p.room <- struct{}{}:
		}
		answered := make(chan struct{})
		p.mu.Lock()
		p.msgs = append(p.msgs, sent{open: true, answered: answered, at: time.Now()})
		p.mu.Unlock()
		p.send(n, inbox)
		p.done.Go(func() { p.follow(n, inbox, answered) })
		if p.every > 0 {
			pause(p.every)
		}
	}
}

// send puts a message on the wire.
func (p *publisher) send(n int, inbox string) {
	m := &nats.Msg{Subject: p.subject(n), Data: p.payload(n), Reply: inbox + "." + strconv.Itoa(n)}
	if p.ids {
		m.Header = nats.Header{jetstream.MsgIDHeader: {p.id(n)}}
	}
	before := p.nc.Stats().Reconnects + 1
	err := p.nc.PublishMsg(m)
	after := p.nc.Stats().Reconnects + 1
	p.mu.Lock()
	s := &p.msgs[n]
	if s.conn = before; before != after || err != nil {
		s.conn = 0
	}
	p.mu.Unlock()
	if err != nil {
		pause(20 * time.Millisecond) // there is no connection
	}
}

// follow waits for the answer to a message, and sends it again where that is
// this publisher's way.
func (p *publisher) follow(n int, inbox string, answered chan struct{}) {
	for {
		select {
		case <-answered:
			return
		case <-time.After(p.wait):
		}
		stopped := false
		select {
		case <-p.stop:
			stopped = true
		default:
		}
		if !p.retry || stopped {
			p.mu.Lock()
			p.release(n)
			p.mu.Unlock()
			return
		}
		p.send(n, inbox)
		p.mu.Lock()
		p.msgs[n].conn = 0
		p.mu.Unlock()
	}
}

// release gives a message's place in the window back.
func (p *publisher) release(n int) {
	if p.msgs[n].open {
		p.msgs[n].open = false
		<-p.room
	}
}

// answer enters an ack, however late it comes.
func (p *publisher) answer(m *nats.Msg) {
	n, err := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	if err != nil {
		return
	}
	var r struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Seq       uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.msgs[n]
	switch {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		p.refuse["no responders"]++
	case json.Unmarshal(m.Data, &r) != nil:
		p.w.broken("nonsense", "answer %q to %s %d", m.Data, p.name, n)
	case r.Error != nil:
		p.refuse[fmt.Sprintf("%d %s", r.Error.Code, r.Error.Description)]++
		s.refused = true
	case r.Seq == 0:
		p.w.broken("nonsense", "%s %d was acknowledged with sequence 0: %s", p.name, n, m.Data)
	default:
		if s.seq != 0 && s.seq != r.Seq {
			p.w.broken("dup", "%s %d was acknowledged as %d and as %d", p.name, n, s.seq, r.Seq)
		}
		if s.seq == 0 {
			p.acks++
			if p.timed {
				p.took = append(p.took, time.Since(s.at))
			}
		}
		s.seq, s.duplicate = r.Seq, s.duplicate || r.Duplicate
		p.gap = max(p.gap, time.Since(p.lastOK))
		p.lastOK = time.Now()
		p.end(n)
		return
	}
	if !p.retry {
		p.end(n)
	}
}

func (p *publisher) end(n int) {
	p.release(n)
	select {
	case <-p.msgs[n].answered:
	default:
		close(p.msgs[n].answered)
	}
}

func (p *publisher) subject(n int) string {
	return fmt.Sprintf("%s.%s.%d", lower(p.stream), p.name, n%7)
}

func (p *publisher) id(n int) string { return fmt.Sprintf("%s-%d", p.name, n) }

// payload returns what the n-th message holds, in full.
func (p *publisher) payload(n int) []byte {
	b := make([]byte, 0, p.size+40)
	b = fmt.Appendf(b, "chaos/%s/%d/%d|", p.name, n, p.w.seed)
	for k := n; len(b) < p.size; k++ {
		b = append(b, byte('a'+k%26))
	}
	return b
}

// parse returns whose message a payload is.
func parse(data []byte) (name string, n int, ok bool) {
	head, _, ok := bytes.Cut(data, []byte("|"))
	parts := strings.Split(string(head), "/")
	if !ok || len(parts) != 4 || parts[0] != "chaos" {
		return "", 0, false
	}
	n, err := strconv.Atoi(parts[2])
	return parts[1], n, err == nil
}

// acked returns how many messages were acknowledged so far.
func (p *publisher) acked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acks
}

// halt stops a publisher and waits a moment for what is on its way.
func (p *publisher) halt() {
	select {
	case <-p.stop:
		return
	default:
	}
	close(p.stop)
	p.done.Wait()
	_ = p.nc.FlushTimeout(2 * time.Second)
}

// halt stops all publishers.
func (w *world) halt() {
	var all sync.WaitGroup
	for _, p := range w.publishers {
		all.Go(p.halt)
	}
	all.Wait()
}

// acked returns how many messages all publishers had acknowledged.
func (w *world) acked() int {
	sum := 0
	for _, p := range w.publishers {
		sum += p.acked()
	}
	return sum
}

// progress waits until every publisher that runs has been acknowledged something
// new, and returns how long that took.
func (w *world) progress(patience time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for _, p := range w.publishers {
		select {
		case <-p.stop:
			continue
		default:
		}
		for before := p.acked(); p.acked() == before; pause(10 * time.Millisecond) {
			if time.Since(began) > patience {
				w.broken("stuck", "%s is acknowledged nothing for %s (refused: %v)", p.name, patience, p.refusals())
				return time.Since(began)
			}
		}
	}
	return time.Since(began)
}

func (p *publisher) refusals() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for k, v := range p.refuse {
		out[k] = v
	}
	return out
}

// times returns how long answers took since the last call.
func (p *publisher) times() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.took
	p.took = nil
	return out
}
