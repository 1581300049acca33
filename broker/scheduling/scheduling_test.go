package scheduling_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// up starts a broker on dir; stop ends it.
func up(t *testing.T, dir string) (js jetstream.JetStream, stop func()) {
	t.Helper()
	b, err := broker.New(broker.Config{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- b.Run(context.Background()) }()
	select {
	case <-b.Ready():
	case err := <-ran:
		t.Fatal("the broker didn't start: ", err)
	case <-time.After(patience):
		t.Fatal("the broker is not ready")
	}
	nc, err := nats.Connect(b.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return js, func() {
		nc.Close()
		if err := errors.Join(b.Close(), <-ran); err != nil {
			t.Error(err)
		}
	}
}

func publish(t *testing.T, js jetstream.JetStream, subject, body string, headers ...string) error {
	t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := js.PublishMsg(ctx, m)
	return err
}

var allowed = jetstream.StreamConfig{
	Name: "S", Subjects: []string{"s.>", "t.>", "d.>"}, AllowMsgSchedules: true, AllowMsgTTL: true,
}

func create(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The codes are what nats-server 2.15.2 answered to the same headers.
func TestSchedulesAreCheckedWhenTheyArePublished(t *testing.T) {
	js, stop := up(t, t.TempDir())
	defer stop()
	create(t, js, allowed)
	create(t, js, jetstream.StreamConfig{Name: "X", Subjects: []string{"x.>"}})
	create(t, js, jetstream.StreamConfig{Name: "N", Subjects: []string{"n.>"}, AllowMsgSchedules: true})
	const far, target = "@at 2220-01-01T00:00:00Z", "Nats-Schedule-Target"
	for _, tt := range []struct {
		code    jetstream.ErrorCode
		subject string
		headers []string
	}{
		{10188, "x.1", []string{"Nats-Schedule", far, target, "x.2"}},
		{0, "x.1", []string{target, "x.2"}},
		{10190, "s.1", []string{"Nats-Schedule", far}},
		{0, "s.1", []string{target, "t.1"}},
		{10190, "s.1", []string{"Nats-Schedule", far, target, "zz.1"}},
		{10190, "s.1", []string{"Nats-Schedule", far, target, "s.1"}},
		{10190, "s.1", []string{"Nats-Schedule", far, target, "t.*"}},
		{10189, "s.1", []string{"Nats-Schedule", "@at nope", target, "t.1"}},
		{10189, "s.1", []string{"Nats-Schedule", "junk", target, "t.1"}},
		{10189, "s.1", []string{"Nats-Schedule", "@every 1ms", target, "t.1"}},
		{10189, "s.1", []string{"Nats-Schedule", "@every 5s", target, "t.1", "Nats-Schedule-Time-Zone", "Europe/Paris"}},
		{10223, "s.1", []string{"Nats-Schedule", "0 0 9 * * *", target, "t.1", "Nats-Schedule-Time-Zone", "Nowhere/X"}},
		{0, "s.1", []string{"Nats-Schedule", "0 0 9 * * *", target, "t.1", "Nats-Schedule-Time-Zone", "Europe/Paris"}},
		{10191, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Schedule-TTL", "x"}},
		{0, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Schedule-TTL", "1m"}},
		{10166, "n.1", []string{"Nats-Schedule", "@hourly", target, "n.2", "Nats-Schedule-TTL", "1m"}},
		{10192, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Rollup", "all"}},
		{10192, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Schedule-Rollup", "all"}},
		{10203, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Schedule-Source", "d.*"}},
		{10203, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Schedule-Source", "s.1"}},
		{10203, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Schedule-Source", "zz"}},
		{10212, "s.1", []string{"Nats-Schedule", "@hourly", target, "t.1", "Nats-Scheduler", "s.2"}},
		{10212, "s.2", []string{"Nats-Scheduler", "s.1"}},
	} {
		err := publish(t, js, tt.subject, "", tt.headers...)
		var e *jetstream.APIError
		if tt.code == 0 && err != nil || tt.code != 0 && (!errors.As(err, &e) || e.ErrorCode != tt.code) {
			t.Errorf("%s %q: got %v, want %d", tt.subject, tt.headers, err, tt.code)
		}
	}
}

// next waits for the next message of an ordered consumer.
func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	m, err := c.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAScheduleIsGoneWithItsLastMessage(t *testing.T) {
	js, stop := up(t, t.TempDir())
	defer stop()
	s := create(t, js, allowed)
	c, err := js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{FilterSubject: "t.>"})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	if err := publish(t, js, "s.1", "hello", "Nats-Schedule", "@at "+at, "Nats-Schedule-Target", "t.1", "Foo", "bar"); err != nil {
		t.Fatal(err)
	}
	m := next(t, c)
	h := m.Headers()
	if string(m.Data()) != "hello" || h.Get("Foo") != "bar" || h.Get("Nats-Scheduler") != "s.1" ||
		h.Get("Nats-Schedule-Next") != "purge" || h.Get("Nats-Schedule") != "" || h.Get("Nats-Rollup") != "" {
		t.Errorf("got %q %v", m.Data(), h)
	}
	if _, err := s.GetLastMsgForSubject(t.Context(), "s.1"); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("the schedule is still there: %v", err)
	}
}

func TestSchedulesGoOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	js, stop := up(t, dir)
	create(t, js, allowed)
	if err := publish(t, js, "s.1", "tick", "Nats-Schedule", "@every 1s", "Nats-Schedule-Target", "t.1",
		"Nats-Schedule-TTL", "1m", "Nats-Schedule-Rollup", "sub"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{FilterSubject: "t.>", DeliverPolicy: jetstream.DeliverNewPolicy})
		if err != nil {
			t.Fatal(err)
		}
		h := next(t, c).Headers()
		due, err := time.Parse(time.RFC3339, h.Get("Nats-Schedule-Next"))
		if err != nil || time.Until(due) > 2*time.Second || h.Get("Nats-TTL") != "1m" || h.Get("Nats-Rollup") != "sub" {
			t.Errorf("got %v", h)
		}
		stop()
		js, stop = up(t, dir)
	}
	stop()
}
