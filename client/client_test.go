package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker"
	"github.com/heraldmq/herald/client"
)

// url is where the examples find a broker.
var url string

func TestMain(m *testing.M) {
	u, stop, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	url = u
	code := m.Run()
	if err := errors.Join(stop(), goleak.Find()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// start runs a broker in this process.
func start() (url string, stop func() error, err error) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		return "", nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(context.Background()) }()
	select {
	case <-b.Ready():
		return b.ClientURL(), func() error { return errors.Join(b.Close(), <-ended) }, nil
	case err := <-ended:
		return "", nil, fmt.Errorf("the broker ended: %w", err)
	case <-time.After(10 * time.Second):
		return "", nil, errors.New("the broker does not get ready")
	}
}

// serve runs a broker for one test and returns its URL.
func serve(t testing.TB) string {
	t.Helper()
	url, stop, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return url
}

// connect connects to a broker of the test's own.
func connect(t testing.TB, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.Connect(serve(t), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// receive takes n messages from a channel.
func receive[T any](t testing.TB, from <-chan T, n int) []T {
	t.Helper()
	var got []T
	for len(got) < n {
		select {
		case m := <-from:
			got = append(got, m)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d arrived", len(got), n)
		}
	}
	return got
}

func into(messages chan<- *client.Message) client.Handler {
	return func(m *client.Message) error { messages <- m; return nil }
}

func TestLiveMessagesKeepEverything(t *testing.T) {
	c := connect(t)
	messages := make(chan *client.Message, 10)
	if _, err := c.Subscribe("a.>", into(messages)); err != nil {
		t.Fatal(err)
	}
	err := c.Publish("a.b", []byte{0, 255}, client.WithHeader("x-Case", "1"), client.WithHeader("x-Case", "2"), client.WithHeader("X-case", "3"), client.ReplyTo("r"))
	if err != nil {
		t.Fatal(err)
	}
	m := receive(t, messages, 1)[0]
	if m.Subject != "a.b" || m.Reply != "r" || string(m.Payload) != "\x00\xff" || m.Stored != nil ||
		!slices.Equal(m.Header["x-Case"], []string{"1", "2"}) || !slices.Equal(m.Header["X-case"], []string{"3"}) {
		t.Errorf("got %+v", m)
	}
}

func TestRequestsAndTheirFailures(t *testing.T) {
	c := connect(t)
	if _, err := c.Request(t.Context(), "nobody", nil); !errors.Is(err, client.ErrNoResponders) || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("got %v", err)
	}
	s, err := c.Subscribe("echo", func(m *client.Message) error { return m.Respond(m.Payload) })
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Request(t.Context(), "echo", []byte("hi"))
	if err != nil || string(m.Payload) != "hi" {
		t.Errorf("got %+v, %v", m, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscribe("silent", func(*client.Message) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Request(ctx, "silent", nil); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("got %v", err)
	}
}

func orders(t testing.TB, c *client.Client) {
	t.Helper()
	if _, err := c.CreateTopic(t.Context(), client.TopicConfig{Name: "orders", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.DeleteTopic(context.Background(), "orders") })
}

func TestDurablePublishAnswersWithTheSequence(t *testing.T) {
	c := connect(t)
	if _, err := c.PublishDurable(t.Context(), "orders.1", nil); !errors.Is(err, client.ErrNoResponders) {
		t.Errorf("without a topic: %v", err)
	}
	orders(t, c)
	for i := uint64(1); i <= 3; i++ {
		r, err := c.PublishDurable(t.Context(), "orders.1", []byte("x"))
		if err != nil || r.Topic != "orders" || r.Sequence != i {
			t.Fatalf("got %+v, %v", r, err)
		}
	}
	first, err := c.PublishDurable(t.Context(), "orders.2", []byte("x"), client.MessageID("id"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.PublishDurable(t.Context(), "orders.2", []byte("x"), client.MessageID("id"))
	if err != nil || !second.Duplicate || second.Sequence != first.Sequence {
		t.Errorf("first %+v, second %+v, %v", first, second, err)
	}
	_, err = c.PublishDurable(t.Context(), "orders.2", nil, client.ExpectLast(1))
	var e *client.Error
	if !errors.Is(err, client.ErrConflict) || !errors.As(err, &e) || e.Code != 10071 {
		t.Errorf("got %v", err)
	}
}

func TestAsyncPublishesKeepOrderWithinABoundedWindow(t *testing.T) {
	c := connect(t, client.PublishWindow(4))
	orders(t, c)
	const n = 500
	futures := make([]*client.Future, n)
	for i := range futures {
		var err error
		if futures[i], err = c.PublishAsync(t.Context(), "orders.x", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, f := range futures {
		for range 2 { // Wait may be called again
			r, err := f.Wait(t.Context())
			if err != nil || r.Sequence != uint64(i+1) {
				t.Fatalf("message %d: %+v, %v", i, r, err)
			}
		}
	}
}

func TestAFullWindowBlocksUntilTheContextEnds(t *testing.T) {
	// Nobody answers on this subject, but somebody listens, so that receipts
	// neither come nor fail.
	c := connect(t, client.PublishWindow(2), client.PublishTimeout(time.Minute))
	if _, err := c.Subscribe("void", func(*client.Message) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var futures []*client.Future
	for range 2 {
		f, err := c.PublishAsync(t.Context(), "void", nil)
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := c.PublishAsync(ctx, "void", nil); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := futures[0].Wait(t.Context()); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestBatchReportsWhatFailed(t *testing.T) {
	c := connect(t)
	orders(t, c)
	receipts, err := c.PublishBatch(t.Context(), []client.Item{
		{Subject: "orders.1", Payload: []byte("a")},
		{Subject: "orders.1", Payload: []byte("b"), Options: []client.PublishOption{client.ExpectTopic("other")}},
		{Subject: "orders.1", Payload: []byte("c")},
	})
	if !errors.Is(err, client.ErrRefused) {
		t.Errorf("got %v", err)
	}
	if receipts[0].Sequence != 1 || receipts[1].Sequence != 0 || receipts[2].Sequence != 2 {
		t.Errorf("got %+v", receipts)
	}
}

func fill(t testing.TB, c *client.Client, n int) time.Time {
	t.Helper()
	var middle time.Time
	for i := 1; i <= n; i++ {
		if _, err := c.PublishDurable(t.Context(), fmt.Sprintf("orders.%d", i%2), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			m, err := c.Message(t.Context(), "orders", uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			middle = m.Stored.Time.Add(1)
		}
	}
	return middle
}

func TestReadingFromEveryPosition(t *testing.T) {
	c := connect(t)
	orders(t, c)
	middle := fill(t, c, 10)
	for _, x := range []struct {
		name    string
		subject string
		from    client.Position
		want    []string
	}{
		{"first", "orders.>", client.First(), []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}},
		{"first of a subject", "orders.0", client.First(), []string{"2", "4", "6", "8", "10"}},
		{"sequence", "orders.>", client.At(8), []string{"8", "9", "10"}},
		{"time", "orders.>", client.Since(middle), []string{"6", "7", "8", "9", "10"}},
		{"last", "orders.>", client.Last(), []string{"10"}},
		{"last of each", "orders.*", client.LastPerSubject(), []string{"9", "10"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			messages := make(chan *client.Message, 100)
			s, err := c.Subscribe(x.subject, into(messages), client.From(x.from))
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range receive(t, messages, len(x.want)) {
				if string(m.Payload) != x.want[i] || m.Stored == nil || m.Stored.Topic != "orders" {
					t.Errorf("message %d is %s: %+v", i, m.Payload, m.Stored)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("new", func(t *testing.T) {
		messages := make(chan *client.Message, 100)
		s, err := c.Subscribe("orders.>", into(messages), client.From(client.Next()))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := c.PublishDurable(t.Context(), "orders.new", []byte("new")); err != nil {
			t.Fatal(err)
		}
		if m := receive(t, messages, 1)[0]; string(m.Payload) != "new" {
			t.Errorf("got %s", m.Payload)
		}
	})
	t.Run("private readers are gone", func(t *testing.T) {
		all, err := c.Consumers(t.Context(), "orders")
		if err != nil || len(all) != 0 {
			t.Errorf("%d left, %v", len(all), err)
		}
	})
}

func TestANamedReaderGoesOnWhereItWas(t *testing.T) {
	c := connect(t)
	orders(t, c)
	fill(t, c, 6)
	read := func(n int) []string {
		messages := make(chan *client.Message, 100)
		var taken atomic.Int32
		s, err := c.Subscribe("orders.>", func(m *client.Message) error {
			if int(taken.Add(1)) > n {
				return nil
			}
			messages <- m
			return m.AckSync(context.Background())
		}, client.Durable("r"), client.ManualAck(), client.MaxInFlight(3))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range receive(t, messages, n) {
			got = append(got, string(m.Payload))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("first %v", got)
	}
	if got := read(4); !slices.Equal(got, []string{"3", "4", "5", "6"}) {
		t.Errorf("then %v", got)
	}
	info, err := c.Consumer(t.Context(), "orders", "r")
	if err != nil || info.AckFloor.Stream != 6 {
		t.Errorf("acknowledged up to %+v, %v", info, err)
	}
	if _, err := c.Subscribe("orders.0", into(nil), client.Durable("r")); !errors.Is(err, client.ErrConflict) {
		t.Errorf("other subjects under one name: %v", err)
	}
}

func TestAHandlersErrorBringsTheMessageAgain(t *testing.T) {
	failed := make(chan error, 10)
	c := connect(t, client.OnError(func(err error) {
		select {
		case failed <- err:
		default:
		}
	}))
	orders(t, c)
	fill(t, c, 1)
	boom := errors.New("boom")
	messages := make(chan *client.Message, 10)
	s, err := c.Subscribe("orders.>", func(m *client.Message) error {
		messages <- m
		if m.Stored.Delivered == 1 {
			return boom
		}
		return nil
	}, client.Durable("r"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m := receive(t, messages, 2)[1]; m.Stored.Delivered != 2 {
		t.Errorf("delivered %d times", m.Stored.Delivered)
	}
	if err := receive(t, failed, 1)[0]; !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

func TestFetch(t *testing.T) {
	c := connect(t, client.Timeout(2*time.Second))
	orders(t, c)
	fill(t, c, 3)
	if _, err := c.CreateConsumer(t.Context(), "orders", client.First().Apply(client.ConsumerConfig{Durable: "r"})); err != nil {
		t.Fatal(err)
	}
	got, err := c.Fetch(t.Context(), "orders", "r", 10)
	if err != nil || len(got) != 3 {
		t.Fatalf("got %d, %v", len(got), err)
	}
	for _, m := range got {
		if err := m.AckSync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Fetch(ctx, "orders", "r", 1); !errors.Is(err, client.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Fetch(t.Context(), "orders", "nope", 1); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestTopicsAndTheirFailures(t *testing.T) {
	c := connect(t)
	if all, err := c.Topics(t.Context()); err != nil || all == nil || len(all) != 0 {
		t.Errorf("got %v, %v: want an empty list", all, err)
	}
	orders(t, c)
	if _, err := c.CreateTopic(t.Context(), client.TopicConfig{Name: "orders", Subjects: []string{"other"}}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := c.Topic(t.Context(), "nope"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Message(t.Context(), "orders", 7); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	fill(t, c, 5)
	if name, err := c.TopicOf(t.Context(), "orders.1"); name != "orders" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	if counts, err := c.TopicSubjects(t.Context(), "orders", ""); err != nil || counts["orders.1"] != 3 || counts["orders.0"] != 2 {
		t.Errorf("got %v, %v", counts, err)
	}
	if err := c.PurgeTopic(t.Context(), "orders", client.Purge{Subject: "orders.1", Keep: 1}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.LastMessage(t.Context(), "orders", "orders.1"); err != nil || string(m.Payload) != "5" {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, err := c.NextMessage(t.Context(), "orders", "orders.0", 3); err != nil || m.Stored.Sequence != 4 {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestAClosedClientSaysSo(t *testing.T) {
	c := connect(t)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Publish("a", nil); !errors.Is(err, client.ErrClosed) {
		t.Errorf("publish: %v", err)
	}
	if _, err := c.Subscribe("a", into(nil)); !errors.Is(err, client.ErrClosed) {
		t.Errorf("subscribe: %v", err)
	}
}

func TestNoBroker(t *testing.T) {
	if _, err := client.Connect("nats://127.0.0.1:1"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
