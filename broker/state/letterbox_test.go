package state

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
)

// graves is a node with a topic whose consumer has all messages pending, and a topic for
// the letters.
type graves struct {
	*node
	t          *testing.T
	from, dead *Topic
	id         topics.ConsumerID
}

func newGraves(t *testing.T, n *node) *graves {
	t.Helper()
	g := &graves{node: n, t: t, from: n.create(conf("FROM", "FROM.>")), dead: n.create(conf("DEAD", "DEAD.>"))}
	for range 3 {
		n.publish(g.from, "FROM.x", "", "it dies")
		n.ack()
	}
	cfg := topics.ConsumerConfig{
		Durable: "c", Name: "c", AckPolicy: topics.AckExplicit, AckWait: time.Minute, MaxAckPending: 100, Metadata: map[string]string{consumer.KeyDeadSubject: "DEAD.x"},
	}
	var err error
	if g.id, err = n.CreateConsumer(t.Context(), g.from, "c", cfg); err != nil {
		t.Fatal(err)
	}
	live := g.copy()
	live.Lead(g.from.Data())
	for range 3 {
		seq, _ := live.Next(1)
		live.Deliver(seq, 1)
	}
	for _, r := range live.Records(nil) {
		g.ask(r.Kind, r.Body)
	}
	return g
}

func (g *graves) copy() *consumer.Consumer { return g.from.Data().Consumer("c") }

func (g *graves) record(body []byte) []byte {
	return append(topics.AppendConsumerRecord(nil, g.from.ID(), g.id), body...)
}

func (g *graves) ask(kind topics.RecordKind, body []byte) {
	g.t.Helper()
	if r, err := g.from.Group().ask(g.t.Context(), kind, g.record(body)); r != nil || err != nil {
		g.t.Fatalf("%v, %v", r, err)
	}
}

func (g *graves) want(pending int, letters uint64) {
	g.t.Helper()
	if n, m := g.copy().NumAckPending(), g.dead.Data().State().Messages; n != pending || m != letters {
		g.t.Errorf("%d pending, %d letters; wanted %d and %d", n, m, pending, letters)
	}
}

// TestAParcelOfOneGroupIsOneEntry: storing and giving up; and what is known of it outlives
// a restart, which applies the log once more.
func TestAParcelOfOneGroupIsOneEntry(t *testing.T) {
	dir := t.TempDir()
	g := newGraves(t, open(t, dir))
	g.ask(topics.RecordLetters, g.copy().AppendLetters(nil, 5, consumer.LetterOps{
		Begin: &consumer.Parcel{Number: 4, To: g.dead.ID(), Messages: []consumer.Letter{{Sequence: 1}, {Sequence: 3}}},
	}))
	g.want(3, 0)
	producer, partition, _ := topics.LetterProducer(g.from.ID(), g.id)
	x := &Guarded{
		Guard:     topics.Guard{Producer: producer, Partition: partition, Epoch: 4, Seq: topics.LetterStored},
		Letters:   g.record(g.copy().AppendLetters(nil, 5, consumer.LetterOps{GiveUp: 4})),
		Publishes: []topics.Publish{{Topic: g.dead.ID(), Subject: []byte("DEAD.x"), Payload: []byte("it died")}},
	}
	group := g.dead.Group()
	for _, want := range []topics.Verdict{topics.GuardNext, topics.GuardDone} {
		if r, err := group.AskGuarded(t.Context(), x); err != nil || r.Verdict != want || r.At != (topics.Place{Epoch: 4, Seq: topics.LetterStored}) {
			t.Fatalf("%+v, %v", r, err)
		}
		g.want(1, 1)
	}
	for number, want := range map[uint64]topics.Place{4: {Epoch: 4, Seq: topics.LetterStored}, 3: {Epoch: 4, Seq: topics.LetterStored}} {
		if r, err := group.CloseLetters(t.Context(), g.dead.ID(), producer, partition, number); err != nil || r.At != want {
			t.Errorf("close %d: %+v, %v", number, r, err)
		}
	}
	if r, err := group.CloseLetters(t.Context(), g.dead.ID(), producer, partition, 6); err != nil || r.At != (topics.Place{Epoch: 6, Seq: topics.LetterClosed}) {
		t.Errorf("close 6: %+v, %v", r, err)
	}
	if r, err := group.CloseLetters(t.Context(), 99, producer, partition, 6); err != nil || r.Fault == nil {
		t.Errorf("close in no topic: %+v, %v", r, err)
	}
	digest := g.digest()
	g.node.close()
	g.node = open(t, dir)
	if got := g.digest(); got != digest {
		t.Errorf("after a restart %s, before %s", got, digest)
	}
	g.from, _ = g.Topic("A", "FROM")
	g.dead, _ = g.Topic("A", "DEAD")
	g.want(1, 1)
	x.Guard.Epoch = 6
	if r, err := g.dead.Group().AskGuarded(t.Context(), x); err != nil || r.Verdict != topics.GuardDone || r.At.Seq != topics.LetterClosed {
		t.Errorf("after it was closed: %+v, %v", r, err)
	}
	g.want(1, 1)
}

func TestWhetherThereIsAConsumer(t *testing.T) {
	g := newGraves(t, open(t, t.TempDir()))
	group := g.from.Group()
	has := func(id topics.TopicID, c topics.ConsumerID) bool {
		t.Helper()
		ok, err := group.HasConsumer(t.Context(), id, c)
		if err != nil {
			t.Error(err)
		}
		return ok
	}
	if !has(g.from.ID(), g.id) || has(g.from.ID(), g.id+1) || has(g.dead.ID(), g.id) {
		t.Error("the consumers are others")
	}
	if _, err := group.HasConsumer(t.Context(), 99, g.id); err == nil {
		t.Error("a topic that is not there says whether it has a consumer")
	}
	if n := g.copy().NumAckPending(); n != 3 {
		t.Errorf("the question changed something: %d are pending", n)
	}
	if _, err := g.DeleteConsumer(t.Context(), g.from, "c"); err != nil {
		t.Fatal(err)
	}
	if has(g.from.ID(), g.id) {
		t.Error("it was deleted")
	}
	if err := g.dead.Group().ForgetLetters(t.Context(), &store.Letterbox{Topic: g.dead.ID(), Producer: topics.OutboxBit | topics.BurialProducer | 1, Partition: 1}); err != nil {
		t.Error(err)
	}
	if g.Deleted(g.from.ID()) || g.Deleted(99) {
		t.Error("a topic counts as deleted")
	}
	if err := g.DeleteTopic(t.Context(), "A", "FROM"); err != nil {
		t.Fatal(err)
	}
	if !g.Deleted(g.from.ID()) {
		t.Error("it is not known that a topic was deleted")
	}
}

// TestALetterOfAVersionBeforeIsApplied: its guard is a producer of its own, and the message
// is given up by a record of acknowledgements.
func TestALetterOfAVersionBeforeIsApplied(t *testing.T) {
	g := newGraves(t, open(t, t.TempDir()))
	id := topics.BurialProducer | 77
	group := g.dead.Group()
	if _, err := group.DeclareProducer(t.Context(), id, 1); err != nil {
		t.Fatal(err)
	}
	live := g.copy()
	live.Lead(g.from.Data())
	live.Term(2, 9)
	raw := topics.AppendGuard(nil, &topics.Guard{Producer: id, Epoch: 1, Seq: 1, Records: 2})
	raw = topics.AppendRecord(raw, topics.RecordAcked, g.record(live.Records(nil)[0].Body))
	raw = topics.AppendPublish(raw, &topics.Publish{Topic: g.dead.ID(), Subject: []byte("DEAD.x"), Payload: []byte("it died")})
	for _, want := range []topics.Verdict{topics.GuardNext, topics.GuardDone} {
		r, err := guardResult(group.ask(t.Context(), topics.RecordGuard, raw))
		if err != nil || r.Verdict != want {
			t.Fatalf("%+v, %v", r, err)
		}
		g.want(2, 1)
	}
}
