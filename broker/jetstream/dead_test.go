package jetstream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker/config"
)

// kept returns all messages of a stream.
func kept(t *testing.T, js jetstream.JetStream, stream string) (out []*jetstream.RawStreamMsg) {
	t.Helper()
	s := must[jetstream.Stream](t)(js.Stream(deadline(t), stream))
	info := must[*jetstream.StreamInfo](t)(s.Info(deadline(t)))
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		m, err := s.GetMsg(deadline(t), seq)
		if err == nil {
			out = append(out, m)
		}
	}
	return out
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for ctx := deadline(t); !ok(); {
		select {
		case <-ctx.Done():
			t.Fatalf("%s never came", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func deadConsumer(name, subject string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 50 * time.Millisecond, MaxDeliver: 2,
		Metadata: map[string]string{"herald.dlq.subject": subject},
	}
}

func TestDeadLettersCarryTheirStory(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: jetstream.WorkQueuePolicy}, {Name: "DEAD", Subjects: []string{"dead.>"}},
	} {
		must[jetstream.Stream](t)(js.CreateStream(ctx, cfg))
	}
	c := must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "ORDERS", deadConsumer("worker", "dead.orders")))
	live := must[*nats.Subscription](t)(nc.SubscribeSync("dead.>"))
	m := nats.NewMsg("orders.1")
	m.Data, m.Header = []byte("one"), nats.Header{"Trace": {"x", "y"}, "Nats-Msg-Id": {"m1"}, "Nats-Expected-Stream": {"ORDERS"}}
	must[*jetstream.PubAck](t)(js.PublishMsg(ctx, m))
	must[*jetstream.PubAck](t)(js.Publish(ctx, "orders.2", []byte("two")))
	batch := must[jetstream.MessageBatch](t)(c.Fetch(2))
	for m := range batch.Messages() {
		if m.Subject() == "orders.1" {
			if err := m.TermWithReason("cannot\nread it"); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := must[jetstream.MessageBatch](t)(c.Fetch(1)) // the second, once more
	for m := range again.Messages() {
		if m.Subject() != "orders.2" {
			t.Errorf("%s is delivered again", m.Subject())
		}
	}
	until(t, "the second dead letter", func() bool { return len(kept(t, js, "DEAD")) == 2 })
	letters := map[string]*jetstream.RawStreamMsg{}
	for _, l := range kept(t, js, "DEAD") {
		letters[l.Header.Get("Herald-Dead-Subject")] = l
	}
	one, two := letters["orders.1"], letters["orders.2"]
	if one == nil || two == nil || string(one.Data) != "one" || string(two.Data) != "two" || one.Subject != "dead.orders" {
		t.Fatalf("letters %v", letters)
	}
	for key, want := range map[string]string{
		"Herald-Dead-Reason": "terminated", "Herald-Dead-Detail": "cannot read it", "Herald-Dead-Attempts": "1", "Herald-Dead-Stream": "ORDERS",
		"Herald-Dead-Sequence": "1", "Herald-Dead-Consumer": "worker", "Trace": "x", "Herald-Dead-Was-Nats-Msg-Id": "m1", "Nats-Msg-Id": "",
	} {
		if got := one.Header.Get(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if len(one.Header["Trace"]) != 2 || two.Header.Get("Herald-Dead-Reason") != "max_deliver" || two.Header.Get("Herald-Dead-Attempts") != "2" {
		t.Errorf("headers %v and %v", one.Header, two.Header)
	}
	for _, key := range []string{"Herald-Dead-Time", "Herald-Dead-At"} {
		if _, err := time.Parse(time.RFC3339Nano, one.Header.Get(key)); err != nil {
			t.Error(err)
		}
	}
	// They are off the queue, and reach those who listen.
	until(t, "the work queue's emptiness", func() bool { return len(kept(t, js, "ORDERS")) == 0 })
	info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx))
	if info.NumAckPending != 0 || info.AckFloor.Stream != 2 {
		t.Errorf("%d pending, floor %d", info.NumAckPending, info.AckFloor.Stream)
	}
	until(t, "the leader's count of what it moved", func() bool { // it hears of it when every copy has
		var st struct{ Moved, Waiting int }
		info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx))
		if err := json.Unmarshal([]byte(info.Config.Metadata["_herald.dlq"]), &st); err != nil {
			t.Fatalf("info %v: %v", info.Config.Metadata, err)
		}
		return st.Moved == 2 && st.Waiting == 0
	})
	for range 2 {
		must[*nats.Msg](t)(live.NextMsg(patience))
	}
}

// A topic that can't take a dead letter keeps its message pending, until it can.
func TestNothingIsGivenUpWhileItsDeadLetterCannotBeStored(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}))
	dead := must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "DEAD", Subjects: []string{"dead"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
	}))
	must[*jetstream.PubAck](t)(js.Publish(ctx, "dead", nil))
	c := must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "ORDERS", deadConsumer("worker", "dead")))
	must[*jetstream.PubAck](t)(js.Publish(ctx, "orders.1", nil))
	m := must[jetstream.Msg](t)(c.Next())
	answer := must[*nats.Subscription](t)(nc.SubscribeSync(nats.NewInbox()))
	if err := nc.PublishRequest(m.Reply(), answer.Subject, []byte("+TERM")); err != nil {
		t.Fatal(err)
	}
	until(t, "the failure", func() bool {
		info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx))
		var st struct {
			Failed int
			Error  string `json:"last_error"`
		}
		_ = json.Unmarshal([]byte(info.Config.Metadata["_herald.dlq"]), &st)
		return st.Failed > 0 && strings.Contains(st.Error, "maximum messages exceeded") && info.NumAckPending == 1 && info.AckFloor.Stream == 0
	})
	if m, err := answer.NextMsg(10 * time.Millisecond); err == nil {
		t.Fatalf("the client is told %q before its message is safe", m.Data)
	}
	if err := dead.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	must[*nats.Msg](t)(answer.NextMsg(patience))
	if n := len(kept(t, js, "DEAD")); n != 1 {
		t.Errorf("%d dead letters", n)
	}
	if info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx)); info.NumAckPending != 0 || info.AckFloor.Stream != 1 {
		t.Errorf("%d pending, floor %d", info.NumAckPending, info.AckFloor.Stream)
	}
}

func TestDeadLettersAndKeysAreCheckedWhenAConsumerIsMade(t *testing.T) {
	_, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}))
	for _, c := range []struct {
		key, value, want string
		cfg              jetstream.ConsumerConfig
	}{
		{"herald.dlq.subject", "dead", "kept by no stream", jetstream.ConsumerConfig{}},
		{"herald.dlq.subject", "dead.*", "without wildcards", jetstream.ConsumerConfig{}},
		{"herald.dlq.subject", "orders.dead", "reads itself", jetstream.ConsumerConfig{}},
		{"herald.dlq.subject", "orders.dead", "ack policy", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
		{"herald.key", "id", "is not a key", jetstream.ConsumerConfig{}},
		{"herald.key", "token:1", "ack policy explicit", jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}},
		{"herald.key", "token:1", "max_ack_pending", jetstream.ConsumerConfig{MaxAckPending: -1}},
		{"herald.dlq.subject", "orders.dead", "", jetstream.ConsumerConfig{FilterSubject: "orders.new"}},
		{"herald.key", "header:Key", "", jetstream.ConsumerConfig{}},
	} {
		c.cfg.Metadata = map[string]string{c.key: c.value}
		_, err := js.CreateConsumer(ctx, "ORDERS", c.cfg)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s %s: %v", c.key, c.value, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || apiError(err) != 10012):
			t.Errorf("%s %s: %v, want %q", c.key, c.value, err, c.want)
		}
	}
}

func TestWhoMayNotPublishDeadLettersMayNotAskForThem(t *testing.T) {
	nc, js := start(t, func(o *config.Options) { permitted(t, o) })
	_ = nc
	ctx := deadline(t)
	for _, name := range []string{"orders", "dead", "secret"} {
		must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}}))
	}
	if _, err := js.CreateConsumer(ctx, "orders", deadConsumer("a", "secret")); err == nil || !strings.Contains(err.Error(), "may not publish") {
		t.Errorf("secret: %v", err)
	}
	if _, err := js.CreateConsumer(ctx, "orders", deadConsumer("b", "dead")); err != nil {
		t.Error(err)
	}
}

// byKeyCheck reads a consumer with several clients at once, and checks that at most one message
// of each key is in flight, and each key's in order.
func byKeyCheck(ctx context.Context, t *testing.T, clients []jetstream.JetStream, stream, name string, total int, lossy bool) {
	t.Helper()
	type got struct{ key, n int }
	in, errs := make(chan got, total), make(chan error, len(clients))
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	flying := newFlights(lossy)
	for _, js := range clients {
		readers.Go(func() {
			c, err := js.Consumer(ctx, stream, name)
			for err == nil && ctx.Err() == nil {
				since := flying.answered()
				var b jetstream.MessageBatch
				if b, err = c.Fetch(10, jetstream.FetchMaxWait(200*time.Millisecond)); err != nil {
					break
				}
				late := false
				for m := range b.Messages() {
					if late {
						continue // it may have waited too long: it comes again
					}
					var g got
					if _, err := fmt.Sscanf(string(m.Data()), "%d %d", &g.key, &g.n); err != nil {
						errs <- err
						return
					}
					md, _ := m.Metadata()
					if text := flying.lands(g.key, g.n, md.NumDelivered > 1, since); text != "" {
						errs <- fmt.Errorf("key %d: %s", g.key, text)
						return
					}
					flying.leaves(g.key, g.n)
					// A leader that goes answers no more: then it comes again, or is done.
					acking, cancel := context.WithTimeout(ctx, 2*time.Second)
					if late = m.DoubleAck(acking) != nil; !late {
						flying.answer(g.key, g.n)
					}
					cancel()
					select {
					case in <- g:
					case <-ctx.Done():
					}
				}
			}
			if ctx.Err() == nil && err != nil && !strings.Contains(err.Error(), "timeout") {
				errs <- err
			}
		})
	}
	seen := map[got]bool{}
	for len(seen) < total {
		select {
		case g := <-in:
			seen[g] = true
		case err := <-errs:
			t.Fatal(err)
		case <-ctx.Done():
			t.Fatalf("%d of %d came", len(seen), total)
		}
	}
}

func TestManyClientsShareAConsumerWithoutTwoOfAKeyAtOnce(t *testing.T) {
	nc, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k.*"}}))
	cfg := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 64, Metadata: map[string]string{"herald.key": "token:2"}}
	must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "K", cfg))
	const keys, each = 7, 40
	for n := range each {
		for k := range keys {
			must[*jetstream.PubAck](t)(js.Publish(ctx, fmt.Sprintf("k.%d", k), fmt.Appendf(nil, "%d %d", k, n)))
		}
	}
	clients := []jetstream.JetStream{js}
	for range 3 {
		other := must[*nats.Conn](t)(nats.Connect(nc.ConnectedUrl()))
		t.Cleanup(other.Close)
		clients = append(clients, must[jetstream.JetStream](t)(jetstream.New(other)))
	}
	byKeyCheck(ctx, t, clients, "K", "c", keys*each, false)
}

// A message that is asked for again comes before the others of its key, which wait; other
// keys go on, within max_ack_pending.
func TestOthersOfAKeyWaitForARedelivery(t *testing.T) {
	t.Parallel()
	_, js := start(t, nil)
	ctx := deadline(t)
	must[jetstream.Stream](t)(js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k"}}))
	cfg := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 3, Metadata: map[string]string{"herald.key": "json:/id"}}
	c := must[jetstream.Consumer](t)(js.CreateConsumer(ctx, "K", cfg))
	for _, body := range []string{`{"id":1}`, `{"id":1}`, `{"id":2}`, `{"id":3}`, `nothing`} {
		must[*jetstream.PubAck](t)(js.Publish(ctx, "k", []byte(body)))
	}
	next := func() (uint64, uint64, jetstream.Msg) {
		t.Helper()
		m := must[jetstream.Msg](t)(c.Next(jetstream.FetchMaxWait(patience)))
		md := must[*jetstream.MsgMetadata](t)(m.Metadata())
		return md.Sequence.Stream, md.NumDelivered, m
	}
	one, _, first := next()
	three, _, third := next()
	if one != 1 || three != 3 {
		t.Fatalf("got %d and %d", one, three)
	}
	// 1, 2 (parked) and 3 are pending: that is the limit.
	if m, err := c.FetchNoWait(1); err != nil {
		t.Fatal(err)
	} else if _, more := <-m.Messages(); more {
		t.Fatal("more is in flight than max_ack_pending")
	}
	if err := first.Nak(); err != nil {
		t.Fatal(err)
	}
	again, attempts, first := next()
	if again != 1 || attempts != 2 {
		t.Fatalf("got %d for the %dth time", again, attempts)
	}
	for _, m := range []jetstream.Msg{first, third} {
		if err := m.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var rest []uint64
	for range 3 {
		seq, attempts, m := next()
		if attempts != 1 {
			t.Errorf("%d comes for the %dth time", seq, attempts)
		}
		rest = append(rest, seq)
		if err := m.DoubleAck(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(rest) != "[2 4 5]" {
		t.Errorf("then came %v", rest)
	}
	info := must[*jetstream.ConsumerInfo](t)(c.Info(ctx))
	if info.NumAckPending != 0 || info.AckFloor.Stream != 5 || !strings.Contains(info.Config.Metadata["_herald.key"], `"keyless":1`) {
		t.Errorf("info %+v", info)
	}
}
