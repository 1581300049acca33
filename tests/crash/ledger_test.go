// Package crash kills brokers, cuts their power and damages their files while
// real earthquakes are published, and holds what is left against what was
// acknowledged.
package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/tests/harness"
)

const (
	topic   = "QUAKES"
	dataset = "../../cmd/pubsub/demo/earthquakes.ndjson"
)

// quakes returns the lines of the data file, each a JSON object.
func quakes(t testing.TB) [][]byte {
	t.Helper()
	f, err := os.Open(dataset)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines [][]byte
	for sc := bufio.NewScanner(f); sc.Scan(); {
		lines = append(lines, bytes.Clone(sc.Bytes()))
	}
	if len(lines) < 1000 {
		t.Fatalf("only %d quakes in %s", len(lines), dataset)
	}
	return lines
}

// subjectOf returns the subject of a quake, quakes.<net>.<type>.
func subjectOf(line []byte) string {
	var q struct {
		Net  string `json:"net"`
		Type string `json:"type"`
	}
	_ = json.Unmarshal(line, &q)
	if q.Net == "" {
		q.Net, q.Type = "none", "unknown"
	}
	return "quakes." + q.Net + "." + strings.ReplaceAll(q.Type, " ", "_")
}

// ledger is what a publisher knows of each message it sent: number → the
// sequence it was acknowledged with, 0 while nothing is known.
type ledger struct {
	lines [][]byte
	acked map[int]uint64
	sent  int
}

// message returns the n-th message: a quake with its number before it.
func (l *ledger) message(n int) *nats.Msg {
	line := l.lines[n%len(l.lines)]
	return &nats.Msg{
		Subject: subjectOf(line),
		Header:  nats.Header{jetstream.MsgIDHeader: {fmt.Sprintf("quake-%d", n)}},
		Data:    append(fmt.Appendf(nil, "%09d:", n), line...),
	}
}

// publish sends messages with up to window of them unacknowledged, until stop
// is closed or the connection breaks. What is acknowledged is entered.
func (l *ledger) publish(nc *nats.Conn, window int, stop <-chan struct{}) {
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(window), jetstream.WithPublishAsyncTimeout(5*time.Second))
	if err != nil {
		return
	}
	type waiting struct {
		n int
		f jetstream.PubAckFuture
	}
	var open []waiting
	settle := func(w waiting, patience time.Duration) bool {
		select {
		case ack := <-w.f.Ok():
			l.acked[w.n] = ack.Sequence
			return true
		default: // an ack that is there counts, however little patience is left
		}
		select {
		case ack := <-w.f.Ok():
			l.acked[w.n] = ack.Sequence
			return true
		case <-w.f.Err():
			return false
		case <-time.After(patience):
			return false
		}
	}
	// What is still open when the broker is gone gets a moment in all.
	settleAll := func() {
		end := time.Now().Add(200 * time.Millisecond)
		for _, w := range open {
			settle(w, max(time.Until(end), 0))
		}
	}
	for {
		select {
		case <-stop:
			settleAll()
			return
		default:
		}
		f, err := js.PublishMsgAsync(l.message(l.sent), jetstream.WithRetryAttempts(0))
		if err != nil {
			settleAll()
			return
		}
		open = append(open, waiting{l.sent, f})
		l.sent++
		for len(open) >= window {
			settle(open[0], 200*time.Millisecond)
			open = open[1:]
		}
	}
}

// check reads the whole topic and reports what contradicts the ledger: lost,
// moved, doubled, reordered, phantom or damaged messages.
func (l *ledger) check(t *testing.T, nc *nats.Conn) {
	t.Helper()
	stored := read(t, nc)
	bySeq := map[uint64]int{}
	count := map[int]int{}
	last := -1
	for _, m := range stored {
		var n int
		if _, err := fmt.Sscanf(string(m.data[:min(len(m.data), 10)]), "%09d:", &n); err != nil {
			t.Fatalf("sequence %d: damaged number %q", m.seq, m.data[:min(len(m.data), 10)])
		}
		if n >= l.sent {
			t.Errorf("sequence %d: message %d was never sent", m.seq, n)
			continue
		}
		if want := l.message(n); !bytes.Equal(m.data, want.Data) || m.subject != want.Subject {
			t.Errorf("sequence %d: message %d is damaged", m.seq, n)
		}
		if count[n]++; count[n] > 1 {
			t.Errorf("message %d is stored twice", n)
		}
		if n < last {
			t.Errorf("message %d stands after %d", n, last)
		}
		last = n
		bySeq[m.seq] = n
	}
	lost := 0
	for n, seq := range l.acked {
		got, ok := bySeq[seq]
		switch {
		case !ok:
			lost++
			if lost <= 5 {
				t.Errorf("message %d was acknowledged as sequence %d and is gone", n, seq)
			}
		case got != n:
			t.Errorf("message %d was acknowledged as sequence %d, which holds %d", n, seq, got)
		}
	}
	if lost > 0 {
		t.Errorf("lost %d of %d acknowledged", lost, len(l.acked))
	}
	t.Logf("sent %d, acknowledged %d, stored %d, lost %d", l.sent, len(l.acked), len(stored), lost)
}

type storedMessage struct {
	seq     uint64
	subject string
	data    []byte
}

// read returns every message of the topic through an ordered consumer.
func read(t *testing.T, nc *nats.Conn) []storedMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, topic)
	if err != nil {
		t.Fatalf("topic %s: %v", topic, err)
	}
	total := stream.CachedInfo().State.Msgs
	if total == 0 {
		return nil
	}
	c, err := js.OrderedConsumer(ctx, topic, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	it, err := c.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	var out []storedMessage
	for uint64(len(out)) < total {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			t.Fatalf("reading %s after %d of %d messages: %v", topic, len(out), total, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, storedMessage{meta.Sequence.Stream, m.Subject(), bytes.Clone(m.Data())})
	}
	return out
}

func createTopic(t *testing.T, nc *nats.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: topic, Subjects: []string{"quakes.>"}, Duplicates: time.Hour}); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, b *harness.Broker) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(b.URL, nats.NoReconnect(), nats.Timeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// long tells whether the long form of a test was asked for.
func long() bool { return os.Getenv("HERALD_LONG") != "" }

// seeded returns a source of randomness that can be had again: the seed is
// printed, and taken from HERALD_SEED when set.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("HERALD_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(errors.Join(errors.New("HERALD_SEED is not a number"), err))
		}
	}
	t.Logf("repeat with HERALD_SEED=%d go test -run '^%s$' ./tests/crash/", seed, t.Name())
	return rand.New(rand.NewPCG(seed, 0))
}
