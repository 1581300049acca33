package state

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// The tests of several nodes wait more than they work: more of them run at once than
// there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // a flag that testing has, and a number
	goleak.VerifyTestMain(m)
}

// node is a State with a front that keeps the acks.
type node struct {
	testing.TB
	*State
	acks chan ack
}

type ack struct{ to, payload, header string }

func (n *node) Deliver(to, _, _ string, header, payload []byte) bool {
	n.acks <- ack{to, string(payload), string(header)}
	return true
}

func (n *node) Answer(_, reply string, header, payload []byte) {
	n.Deliver(reply, reply, "", header, payload)
}

func (n *node) Flush() {}

// open opens and starts a State in dir; it is closed with the test.
func open(t testing.TB, dir string, with ...func(*Options)) *node {
	t.Helper()
	n := openOnly(t, dir, with...)
	if err := n.Start(Hooks{}); err != nil {
		t.Fatal(err)
	}
	return n
}

func openOnly(t testing.TB, dir string, with ...func(*Options)) *node {
	t.Helper()
	n := &node{TB: t, acks: make(chan ack, 100000)}
	o := Options{Dir: dir, Replier: func(*front.Account) Replier { return n }, Fatal: func(err error) { t.Errorf("fatal: %v", err) }}
	for _, w := range with {
		w(&o)
	}
	var err error
	if n.State, err = Open(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return n
}

func (n *node) close() {
	if err := n.Close(); err != nil {
		n.Errorf("close: %v", err)
	}
}

func conf(name string, subjects ...string) topics.Config {
	return topics.Config{
		Name: name, Subjects: subjects, Retention: topics.RetainLimits, Discard: topics.DiscardOld, Storage: topics.StoreFile,
		MaxConsumers: -1, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, Replicas: 1, Duplicates: 2 * time.Minute,
	}
}

func (n *node) create(cfg topics.Config) *Topic {
	n.Helper()
	t, _, err := n.CreateTopic(n.Context(), "A", cfg)
	if err != nil {
		n.Fatalf("create %s: %v", cfg.Name, err)
	}
	return t
}

var someAccount = &front.Account{}

func (n *node) publish(t *Topic, subject, header, payload string) {
	reply := fmt.Sprintf("_INBOX.%s", payload)
	t.Group().Capture([]front.Captured{{
		Topic: t.ID(), Subject: []byte(subject), Reply: []byte(reply), Header: []byte(header), Payload: []byte(payload), Account: someAccount,
	}})
}

func (n *node) ack() ack {
	n.Helper()
	select {
	case a := <-n.acks:
		return a
	case <-time.After(10 * time.Second):
		n.Fatal("no ack within 10 s")
		return ack{}
	}
}

// digest is all that can be seen of the topics.
func (n *node) digest() string {
	n.Helper()
	var b strings.Builder
	n.Topics("", func(t *Topic) bool {
		cfg, err := json.Marshal(t.Config())
		if err != nil {
			n.Fatal(err)
		}
		fmt.Fprintf(&b, "%s/%s %d %s %s %+v\n", t.Account(), t.Name(), t.ID(), t.Created(), cfg, t.Data().State())
		msgs, _, err := t.Data().Read(nil, 0, 1<<30, 1<<30, nil)
		if err != nil {
			n.Fatal(err)
		}
		for _, m := range msgs {
			fmt.Fprintf(&b, "  %d %d %s %q %q\n", m.Sequence, m.Time, m.Subject, m.Header, m.Payload)
		}
		for _, name := range t.Data().ConsumerNames() {
			c := t.Data().Consumer(name)
			fmt.Fprintf(&b, "  consumer %s %d %+v %+v %+v\n", name, c.ID(), c.Config(), c.Delivered(), c.AckFloor())
		}
		return true
	})
	return b.String()
}

func TestPublishIsAckedAndSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir, func(o *Options) { o.Domain = "hub" })
	top := n.create(conf("orders", "orders.>"))
	for i := range 100 {
		n.publish(top, "orders.new", "", fmt.Sprint("m", i))
	}
	for i := range 100 {
		want := ack{to: fmt.Sprint("_INBOX.m", i), payload: fmt.Sprintf(`{"stream":"orders","seq":%d,"domain":"hub"}`, i+1)}
		if got := n.ack(); got != want {
			t.Fatalf("ack %+v, want %+v", got, want)
		}
	}
	n.publish(top, "orders.new", "NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n", "dup")
	n.publish(top, "orders.new", "NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n", "dup")
	n.publish(top, "orders.new", "NATS/1.0\r\nNats-Expected-Last-Sequence: 7\r\n\r\n", "bad")
	n.ack()
	if got := n.ack(); got.payload != `{"stream":"orders","seq":101,"domain":"hub","duplicate":true}` {
		t.Fatalf("duplicate: %+v", got)
	}
	if got := n.ack(); got.payload != `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 101"},"stream":"orders","seq":0}` {
		t.Fatalf("refusal: %+v", got)
	}
	if _, err := n.CreateConsumer(t.Context(), top, "c", topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit, DeliverPolicy: topics.DeliverAll}); err != nil {
		t.Fatal(err)
	}
	before := n.digest()
	n.close()

	n = open(t, dir)
	if after := n.digest(); after != before {
		t.Fatalf("after the restart:\n%s\nbefore:\n%s", after, before)
	}
	top, ok := n.Topic("A", "orders")
	if !ok {
		t.Fatal("the topic is gone")
	}
	n.publish(top, "orders.new", "", "more")
	if got := n.ack(); got.payload != `{"stream":"orders","seq":102}` {
		t.Fatalf("after the restart: %+v", got)
	}
}

func TestTopicsAreCreatedUpdatedAndDeleted(t *testing.T) {
	var seen []string
	var mu sync.Mutex
	n := openOnly(t, t.TempDir())
	if err := n.Start(Hooks{
		OnTopic: func(t *Topic, c Change) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprint(t.Name(), " ", c))
		},
		OnConsumer: func(t *Topic, name string, c Change) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprint(t.Name(), "/", name, " ", c))
		},
	}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	top := n.create(conf("t", "a"))
	if again, created, err := n.CreateTopic(ctx, "A", conf("t", "a")); err != nil || created || again != top {
		t.Fatalf("create again: %v, %t, %v", again, created, err)
	}
	if _, _, err := n.CreateTopic(ctx, "A", conf("t", "b")); !errors.Is(err, catalogue.FaultNameInUse) {
		t.Fatalf("other config: %v", err)
	}
	if _, _, err := n.CreateTopic(ctx, "A", conf("u", "*")); !errors.Is(err, catalogue.FaultOverlap) {
		t.Fatalf("overlap: %v", err)
	}
	cfg := conf("t", "b")
	cfg.MaxMsgs = 2
	if got, err := n.UpdateTopic(ctx, "A", cfg); err != nil || got != top || got.Config().MaxMsgs != 2 {
		t.Fatalf("update: %v", err)
	}
	for i := range 5 {
		n.publish(top, "b", "", fmt.Sprint(i))
		n.ack()
	}
	if st := top.Data().State(); st.Messages != 2 || st.First != 4 {
		t.Fatalf("state %+v", st)
	}
	if ok, err := n.DeleteMessage(ctx, top, 4); err != nil || !ok {
		t.Fatalf("delete message: %t, %v", ok, err)
	}
	if k, err := n.Purge(ctx, top, store.Purge{}); err != nil || k != 1 {
		t.Fatalf("purge: %d, %v", k, err)
	}
	cc := topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit, DeliverPolicy: topics.DeliverAll}
	if _, err := n.CreateConsumer(ctx, top, "c", cc); err != nil {
		t.Fatal(err)
	}
	cc.Description = "changed"
	if err := n.UpdateConsumer(ctx, top, "c", cc); err != nil {
		t.Fatal(err)
	}
	if err := n.PauseConsumer(ctx, top, "c", time.Unix(5, 0)); err != nil || top.Data().Consumer("c").PausedUntil() != 5e9 {
		t.Fatalf("pause: %v", err)
	}
	if at, err := n.ResetConsumer(ctx, top, "c", 9); err != nil {
		t.Fatalf("reset: %d, %v", at, err)
	}
	if err := n.UpdateConsumer(ctx, top, "d", cc); !errors.Is(err, faultConsumerNotFound) {
		t.Fatalf("update of a consumer that isn't there: %v", err)
	}
	if u := n.Usage("A"); u.Topics != 1 || u.Consumers != 1 {
		t.Fatalf("usage %+v", u)
	}
	if ok, err := n.DeleteConsumer(ctx, top, "c"); err != nil || !ok {
		t.Fatalf("delete consumer: %t, %v", ok, err)
	}
	if err := n.DeleteTopic(ctx, "A", "t"); err != nil || !top.Gone() {
		t.Fatalf("delete: %v", err)
	}
	if err := n.DeleteTopic(ctx, "A", "t"); !errors.Is(err, catalogue.FaultTopicNotFound) {
		t.Fatalf("delete again: %v", err)
	}
	if _, err := n.Purge(ctx, top, store.Purge{}); !errors.Is(err, faultTopicNotFound) {
		t.Fatalf("purge of a topic that is gone: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"t created", "t updated", "t/c created", "t/c updated", "t/c updated", "t/c reset", "t/c deleted", "t deleted"}
	if !slices.Equal(seen, want) {
		t.Fatalf("seen %q, want %q", seen, want)
	}
}

// TestHalfATwoGroupChangeIsFinishedAtStart takes only some of the steps of a
// change, as a crash would leave it.
func TestHalfATwoGroupChangeIsFinishedAtStart(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	n := open(t, dir)
	old := n.create(conf("old", "old"))
	grown := n.create(conf("grown", "grown"))
	decide := func(cmd catalogue.Command) *catalogue.Topic {
		t.Helper()
		r, err := n.decide(ctx, &cmd)
		if err != nil {
			t.Fatal(err)
		}
		return r.Topic
	}
	cfg := func(name string) *topics.Config { c := conf(name, name+".new"); return &c }
	// Decided, but not carried out.
	decide(catalogue.Command{Op: catalogue.OpCreateTopic, Account: "A", Config: cfg("fresh"), Groups: 1})
	decide(catalogue.Command{Op: catalogue.OpUpdateTopic, Account: "A", Config: cfg("grown")})
	decide(catalogue.Command{Op: catalogue.OpDeleteTopic, Account: "A", Name: "old"})
	// Decided and carried out, but not noted; then decided once more.
	noted := decide(catalogue.Command{Op: catalogue.OpCreateTopic, Account: "A", Config: cfg("noted"), Groups: 1})
	kind, body, _, err := nextStep(noted)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Groups()[0].ask(ctx, kind, body); err != nil {
		t.Fatal(err)
	}
	again := *cfg("noted")
	again.MaxMsgs = 7
	decide(catalogue.Command{Op: catalogue.OpUpdateTopic, Account: "A", Config: &again})
	if _, ok := n.Topic("A", "fresh"); ok {
		t.Fatal("fresh is there before its group has it")
	}
	n.close()

	n = openOnly(t, dir)
	if _, ok := n.TopicByID(old.ID()); !ok {
		t.Fatal("old was dropped before anything was committed to its group")
	}
	if err := n.Start(Hooks{}); err != nil {
		t.Fatal(err)
	}
	if top, ok := n.Topic("A", "fresh"); !ok {
		t.Error("fresh was not created")
	} else {
		n.publish(top, "fresh.new", "", "x")
		n.ack()
	}
	if top, ok := n.TopicByID(grown.ID()); !ok || top.Config().Subjects[0] != "grown.new" {
		t.Error("grown was not updated")
	}
	if _, ok := n.TopicByID(old.ID()); ok {
		t.Error("old was not deleted")
	}
	if top, ok := n.Topic("A", "noted"); !ok || top.Config().MaxMsgs != 7 {
		t.Error("noted has not its last config")
	}
	n.close()

	n = open(t, dir)
	n.catalogue.read(func(c *catalogue.Catalogue) {
		for _, top := range c.Topics() {
			if !top.Settled() {
				t.Errorf("%s is still not settled: %+v", top.Config.Name, top)
			}
		}
	})
}

func TestChangesAtOnceEndAlikeInBothGroups(t *testing.T) {
	n := open(t, t.TempDir())
	var all sync.WaitGroup
	var made atomic.Int32
	for i := range 8 {
		all.Go(func() {
			if _, created, err := n.CreateTopic(t.Context(), "A", conf("t", "t")); err != nil {
				t.Errorf("create: %v", err)
			} else if created {
				made.Add(1)
			}
			for k := range 5 {
				cfg := conf("t", "t")
				cfg.MaxMsgs = int64(100*i + k + 1)
				if _, err := n.UpdateTopic(t.Context(), "A", cfg); err != nil {
					t.Errorf("update: %v", err)
				}
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("the topic was created %d times", made.Load())
	}
	top, ok := n.Topic("A", "t")
	if !ok {
		t.Fatal("no topic")
	}
	var want int64
	n.catalogue.read(func(c *catalogue.Catalogue) { want = c.Find("A", "t").Config.MaxMsgs })
	if got := top.Config().MaxMsgs; got != want {
		t.Fatalf("the data group has %d, the catalogue %d", got, want)
	}
	for range 20 {
		all.Go(func() {
			if err := n.DeleteTopic(t.Context(), "A", "t"); err != nil && !errors.Is(err, catalogue.FaultTopicNotFound) {
				t.Errorf("delete: %v", err)
			}
			if _, _, err := n.CreateTopic(t.Context(), "A", conf("t", "t")); err != nil && !errors.Is(err, faultTopicNotFound) {
				t.Errorf("create again: %v", err)
			}
		})
	}
	all.Wait()
	var named int
	n.Topics("A", func(*Topic) bool { named++; return true })
	if named > 1 {
		t.Fatalf("%d topics of one name are left", named)
	}
}

func TestLimitsOfAnAccount(t *testing.T) {
	n := open(t, t.TempDir(), func(o *Options) {
		o.Limits = func(account string) catalogue.Limits {
			return catalogue.Limits{Topics: 1, Consumers: 1, FileBytes: 100}
		}
	})
	top := n.create(conf("t", "t"))
	if _, _, err := n.CreateTopic(t.Context(), "A", conf("u", "u")); !errors.Is(err, catalogue.FaultTooManyTopics) {
		t.Fatalf("second topic: %v", err)
	}
	cc := topics.ConsumerConfig{Durable: "c", AckPolicy: topics.AckExplicit, DeliverPolicy: topics.DeliverAll}
	if _, err := n.CreateConsumer(t.Context(), top, "c", cc); err != nil {
		t.Fatal(err)
	}
	cc.Durable = "d"
	if _, err := n.CreateConsumer(t.Context(), top, "d", cc); !errors.Is(err, faultMaxConsumers) {
		t.Fatalf("second consumer: %v", err)
	}
	n.publish(top, "t", "", strings.Repeat("x", 60))
	if a := n.ack(); !strings.Contains(a.payload, `"seq":1`) {
		t.Fatalf("ack %+v", a)
	}
	n.publish(top, "t", "", strings.Repeat("y", 60))
	if a := n.ack(); !strings.Contains(a.payload, `"err_code":10002`) {
		t.Fatalf("beyond the account's bytes: %+v", a)
	}
	if _, err := n.Purge(t.Context(), top, store.Purge{}); err != nil {
		t.Fatal(err)
	}
	n.publish(top, "t", "", strings.Repeat("y", 60))
	if a := n.ack(); !strings.Contains(a.payload, `"seq":2`) {
		t.Fatalf("after the purge: %+v", a)
	}
}

func TestOldMessagesExpire(t *testing.T) {
	n := open(t, t.TempDir())
	cfg := conf("t", "t")
	cfg.MaxAge = 200 * time.Millisecond
	cfg.Duplicates = cfg.MaxAge
	top := n.create(cfg)
	n.publish(top, "t", "", "x")
	n.ack()
	waitFor(t, "the message to expire", func() bool { return top.Data().State().Messages == 0 })
	e := n.replicas()[0].expiry
	waitFor(t, "the timer to rest", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.due) == 0 && len(e.dirty) == 0
	})
}

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited 10 s for %s", what)
		}
	}
}

func TestAdvertisementsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	a, e, err := n.Advertise(t.Context(), Put{Account: "A", ID: "ID", Body: []byte(`{"name":"a","subject":"a.{b}"}`)})
	if err != nil || e == nil || e.Kind != catalogue.Added {
		t.Fatalf("advertise: %+v, %v", e, err)
	}
	n.close()
	n = open(t, dir)
	all, revision := n.Advertisements("A")
	if len(all) != 1 || all[0].ID != "ID" || all[0].Created != a.Created || revision != 1 {
		t.Fatalf("after the restart: %+v at %d", all, revision)
	}
	if err := n.Withdraw(t.Context(), all[0], false); err != nil {
		t.Fatal(err)
	}
	if err := n.Withdraw(t.Context(), all[0], false); !errors.Is(err, catalogue.FaultNoAdvertised) {
		t.Fatalf("withdraw again: %v", err)
	}
}

func TestAClosedStateRefuses(t *testing.T) {
	n := open(t, t.TempDir())
	top := n.create(conf("t", "t"))
	n.close()
	n.publish(top, "t", "", "x")
	if _, err := n.Purge(context.Background(), top, store.Purge{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("purge: %v", err)
	}
	if err := n.DeleteTopic(context.Background(), "A", "t"); err == nil {
		t.Fatal("deleted a topic of a closed state")
	}
}

// TestOneTopicsTroubleDoesNotKeepTheNodeDown starts a node whose catalogue wants
// something of a topic that its data group doesn't have (its state was damaged,
// say): the others are served.
func TestOneTopicsTroubleDoesNotKeepTheNodeDown(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	n := open(t, dir)
	bad := n.create(conf("bad", "bad"))
	n.create(conf("good", "good"))
	changed := conf("bad", "bad.new")
	if _, err := n.decide(ctx, &catalogue.Command{Op: catalogue.OpUpdateTopic, Account: "A", Config: &changed}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Groups()[0].ask(ctx, topics.RecordTopicDelete, appendTopic(nil, bad.ID())); err != nil {
		t.Fatal(err)
	}
	n.close()

	n = open(t, dir)
	good, ok := n.Topic("A", "good")
	if !ok {
		t.Fatal("the other topic is gone")
	}
	n.publish(good, "good", "", "x")
	n.ack()
}
