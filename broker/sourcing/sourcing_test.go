package sourcing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// node is a broker that can be stopped and started again.
type node struct {
	t    *testing.T
	dir  string
	stop func()
	js   jetstream.JetStream
	nc   *nats.Conn
}

func start(t *testing.T) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	n.up()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) up() {
	n.t.Helper()
	b, err := broker.New(broker.Config{StoreDir: n.dir})
	if err != nil {
		n.t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- b.Run(context.Background()) }()
	select {
	case <-b.Ready():
	case err := <-ran:
		n.t.Fatal("the broker didn't start: ", err)
	case <-time.After(patience):
		n.t.Fatal("the broker is not ready")
	}
	if n.nc, err = nats.Connect(b.ClientURL()); err != nil {
		n.t.Fatal(err)
	}
	if n.js, err = jetstream.New(n.nc); err != nil {
		n.t.Fatal(err)
	}
	n.stop = func() {
		n.nc.Close()
		if err := errors.Join(b.Close(), <-ran); err != nil {
			n.t.Error(err)
		}
	}
}

func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

func (n *node) create(cfg jetstream.StreamConfig) jetstream.Stream {
	n.t.Helper()
	s, err := n.js.CreateStream(n.ctx(), cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) publish(subject, data string) {
	n.t.Helper()
	if _, err := n.js.Publish(n.ctx(), subject, []byte(data)); err != nil {
		n.t.Fatal(err)
	}
}

// eventually waits until a stream's info is as wanted.
func (n *node) eventually(stream, what string, ok func(*jetstream.StreamInfo) bool) *jetstream.StreamInfo {
	n.t.Helper()
	ctx := n.ctx()
	for {
		s, err := n.js.Stream(ctx, stream)
		if err != nil {
			n.t.Fatal(err)
		}
		info := s.CachedInfo()
		if ok(info) {
			return info
		}
		if ctx.Err() != nil {
			n.t.Fatalf("%s: not %s, but %+v, mirror %+v", stream, what, info.State, info.Mirror)
		}
	}
}

func (n *node) message(stream string, seq uint64) *jetstream.RawStreamMsg {
	n.t.Helper()
	s, err := n.js.Stream(n.ctx(), stream)
	if err != nil {
		n.t.Fatal(err)
	}
	m, err := s.GetMsg(n.ctx(), seq)
	if err != nil {
		n.t.Fatalf("%s %d: %v", stream, seq, err)
	}
	return m
}

func TestAMirrorKeepsSequencesAndGoesOnAfterARestart(t *testing.T) {
	n := start(t)
	origin := n.create(jetstream.StreamConfig{Name: "O", Subjects: []string{"o.>"}})
	for i := 1; i <= 10; i++ {
		n.publish("o.a", fmt.Sprint(i))
	}
	for _, seq := range []uint64{1, 2, 5, 6} {
		if err := origin.DeleteMsg(n.ctx(), seq); err != nil {
			t.Fatal(err)
		}
	}
	n.create(jetstream.StreamConfig{Name: "M", Mirror: &jetstream.StreamSource{Name: "O"}})
	info := n.eventually("M", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq == 10 })
	if info.State.FirstSeq != 3 || info.State.Msgs != 6 || info.State.NumDeleted != 2 {
		t.Errorf("state %+v", info.State)
	}
	if m := n.message("M", 7); string(m.Data) != "7" || m.Subject != "o.a" {
		t.Errorf("message 7 is %q on %s", m.Data, m.Subject)
	}
	for _, seq := range []uint64{3, 10} {
		if was, is := n.message("O", seq).Time, n.message("M", seq).Time; !was.Equal(is) {
			t.Errorf("message %d was stored at %v, its copy at %v", seq, was, is)
		}
	}
	n.stop()
	n.up()
	n.publish("o.b", "11")
	info = n.eventually("M", "caught up again", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq == 11 })
	if info.State.Msgs != 7 || info.Mirror == nil || info.Mirror.Name != "O" || info.Mirror.Error != nil {
		t.Errorf("state %+v, mirror %+v", info.State, info.Mirror)
	}
	if _, err := n.js.UpdateStream(n.ctx(), jetstream.StreamConfig{Name: "M", Subjects: []string{"m"}}); err != nil {
		t.Fatal("promote the mirror: ", err)
	}
	n.publish("m", "12")
	if info := n.eventually("M", "on its own", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq == 12 }); info.Mirror != nil {
		t.Errorf("mirror %+v", info.Mirror)
	}
}

func TestSourcesAreMergedOnceWithFiltersAndTransforms(t *testing.T) {
	n := start(t)
	n.create(jetstream.StreamConfig{Name: "A", Subjects: []string{"a.>"}})
	n.create(jetstream.StreamConfig{Name: "B", Subjects: []string{"b.>"}})
	sink := jetstream.StreamConfig{Name: "SINK", Sources: []*jetstream.StreamSource{
		{Name: "A", FilterSubject: "a.keep.>"},
		{Name: "B", SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: "b.*", Destination: "from.b.{{wildcard(1)}}"}}},
	}}
	for i := range 20 {
		n.publish(fmt.Sprintf("a.keep.%d", i), "a")
		n.publish(fmt.Sprintf("a.drop.%d", i), "a")
		n.publish(fmt.Sprintf("b.%d", i), "b")
	}
	n.create(sink)
	n.eventually("SINK", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 40 })
	for range 2 {
		n.stop()
		n.up()
		n.publish("a.keep.x", "a")
		n.publish("b.x", "b")
	}
	info := n.eventually("SINK", "caught up again", func(i *jetstream.StreamInfo) bool { return i.State.Msgs >= 44 })
	if info.State.Msgs != 44 || len(info.Sources) != 2 {
		t.Fatalf("%d messages from %d sources", info.State.Msgs, len(info.Sources))
	}
	s, err := n.js.Stream(n.ctx(), "SINK")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(n.ctx(), "from.b.x")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get("Nats-Stream-Source"); !strings.HasPrefix(got, "B 22 ") || !strings.HasSuffix(got, " b.x") {
		t.Errorf("source header %q", got)
	}
	if _, err := n.js.PublishMsg(n.ctx(), &nats.Msg{Subject: "a.keep.y", Header: m.Header}); err == nil {
		t.Error("a client may not say that its message is sourced")
	}
}

func TestWorkQueuesAreConsumed(t *testing.T) {
	n := start(t)
	queue := n.create(jetstream.StreamConfig{Name: "Q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy})
	if _, err := queue.CreateConsumer(n.ctx(), jetstream.ConsumerConfig{Durable: "W", FilterSubject: "q.mine"}); err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		n.publish("q.theirs", fmt.Sprint(i))
	}
	n.publish("q.mine", "kept")
	n.create(jetstream.StreamConfig{Name: "SINK", Sources: []*jetstream.StreamSource{{Name: "Q", FilterSubject: "q.theirs"}}})
	for round := range 2 {
		n.eventually("SINK", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == uint64(600+round) })
		n.eventually("Q", "consumed", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 1 })
		if round == 0 {
			n.stop()
			n.up()
			n.publish("q.theirs", "after the restart")
		}
	}
	if m := n.message("SINK", 600); string(m.Data) != "599" {
		t.Errorf("message 600 is %q", m.Data)
	}
	worker, err := n.js.Consumer(n.ctx(), "Q", "W")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := worker.Next(); err != nil || string(m.Data()) != "kept" {
		t.Errorf("the worker got %v, %v", m, err)
	}
	// A new queue of that name starts over, though its sequences were seen before.
	if err := n.js.DeleteStream(n.ctx(), "Q"); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.up()
	n.create(jetstream.StreamConfig{Name: "Q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy})
	for i := range 5 {
		n.publish("q.theirs", fmt.Sprint(i))
	}
	n.eventually("SINK", "caught up with the new one", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 606 })
	if queue, err = n.js.Stream(n.ctx(), "Q"); err != nil {
		t.Fatal(err)
	}
	if _, err = queue.CreateConsumer(n.ctx(), jetstream.ConsumerConfig{Durable: "W", FilterSubject: "q.mine"}); err != nil {
		t.Fatal(err)
	}
	// Two can't have the same messages.
	n.create(jetstream.StreamConfig{Name: "SHARED", Sources: []*jetstream.StreamSource{{Name: "Q", FilterSubject: "q.mine"}}})
	n.publish("q.mine", "again")
	n.eventually("SHARED", "telling", func(i *jetstream.StreamInfo) bool { return i.Sources[0].Error != nil && i.State.Msgs == 0 })
}

func TestAMissingOriginIsToldAndWaitedFor(t *testing.T) {
	n := start(t)
	n.create(jetstream.StreamConfig{Name: "SINK", Sources: []*jetstream.StreamSource{
		{Name: "LATER"}, {Name: "FAR", External: &jetstream.ExternalStream{APIPrefix: "$JS.far.API"}},
	}})
	n.eventually("SINK", "telling", func(i *jetstream.StreamInfo) bool {
		return len(i.Sources) == 2 && i.Sources[0].Error != nil && i.Sources[1].Error != nil
	})
	n.create(jetstream.StreamConfig{Name: "LATER", Subjects: []string{"l"}})
	n.publish("l", "x")
	n.eventually("SINK", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 1 && i.Sources[0].Error == nil })
}

func TestCapturedSubjectsAreMappedAndRepublished(t *testing.T) {
	n := start(t)
	sub, err := n.nc.SubscribeSync("out.>")
	if err != nil {
		t.Fatal(err)
	}
	n.create(jetstream.StreamConfig{
		Name: "S", Subjects: []string{"in.*"}, MaxMsgsPerSubject: 5,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "in.*", Destination: "kept.{{wildcard(1)}}"},
		RePublish:        &jetstream.RePublish{Source: "kept.>", Destination: "out.>"},
	})
	keep := n.create(jetstream.StreamConfig{Name: "K", Subjects: []string{"out.>"}})
	for i := range 3 {
		n.publish("in.x", fmt.Sprint(i))
	}
	n.eventually("K", "holding what was republished", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 3 })
	for seq := range uint64(3) {
		m, err := keep.GetMsg(n.ctx(), seq+1)
		if err != nil || string(m.Data) != fmt.Sprint(seq) || m.Subject != "out.x" || m.Header.Get("Nats-Stream") != "S" {
			t.Errorf("message %d: %+v, %v", seq+1, m, err)
		}
	}
	for i, last := range []string{"0", "1", "2"} {
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != "out.x" || string(m.Data) != fmt.Sprint(i) || m.Header.Get("Nats-Subject") != "kept.x" ||
			m.Header.Get("Nats-Stream") != "S" || m.Header.Get("Nats-Sequence") != fmt.Sprint(i+1) ||
			m.Header.Get("Nats-Last-Sequence") != last || m.Header.Get("Nats-Time-Stamp") == "" {
			t.Errorf("got %s %q %v", m.Subject, m.Data, m.Header)
		}
	}
}

// TestExpectationsAreOfTheOriginOnly copies messages that were published with
// expectations: they were checked where they came from, and wouldn't hold here.
func TestExpectationsAreOfTheOriginOnly(t *testing.T) {
	n := start(t)
	for _, name := range []string{"A", "B"} {
		n.create(jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}})
		for i := range uint64(10) {
			m := &nats.Msg{Subject: strings.ToLower(name), Header: nats.Header{"Kept": {"x"}}}
			if _, err := n.js.PublishMsg(n.ctx(), m, jetstream.WithExpectStream(name), jetstream.WithExpectLastSequence(i), jetstream.WithExpectLastSequencePerSubject(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.create(jetstream.StreamConfig{Name: "SINK", Sources: []*jetstream.StreamSource{{Name: "A"}, {Name: "B"}}})
	n.create(jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "A", OptStartSeq: 5}})
	n.eventually("SINK", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.Msgs == 20 })
	n.eventually("COPY", "caught up", func(i *jetstream.StreamInfo) bool { return i.State.LastSeq == 10 && i.State.Msgs == 6 })
	for _, stream := range []string{"SINK", "COPY"} {
		h := n.message(stream, 10).Header
		if h.Get("Kept") != "x" || h.Get("Nats-Expected-Stream") != "" {
			t.Errorf("%s: header %v", stream, h)
		}
	}
}
