package state

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
)

// settled waits until a topic has moved to a group of so many replicas, as every node
// sees it.
func (f *fleet) settled(topic string, replicas int) {
	f.Helper()
	f.wait(fmt.Sprintf("%s has %d replicas", topic, replicas), func() (bool, string) {
		for _, n := range f.names() {
			t, ok := f.nodes[n].Topic("A", topic)
			if !ok {
				return false, n + " doesn't know it"
			}
			var e *catalogue.Topic
			f.nodes[n].catalogue.read(func(c *catalogue.Catalogue) { e = c.Topic(t.ID()) })
			if e.Move != nil || t.Group().Replicas() != replicas || t.Moving() || t.Config().Replicas != replicas || !e.Settled() {
				return false, fmt.Sprintf("%s has it in group %d of %d, moving %t, move %+v", n, t.Group().ID(), t.Group().Replicas(), t.Moving(), e.Move)
			}
		}
		return true, ""
	})
}

// rescale asks for another number of replicas, until somebody takes it.
func (f *fleet) rescale(topic string, replicas int) {
	f.Helper()
	f.wait("the move is decided", func() (bool, string) {
		on := f.names()[0]
		t, ok := f.nodes[on].Topic("A", topic)
		if !ok {
			return false, "not known"
		}
		cfg := *t.Config()
		cfg.Replicas = replicas
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := f.nodes[on].UpdateTopic(ctx, "A", cfg)
		return err == nil, fmt.Sprint(err)
	})
}

// traffic publishes on all nodes until it is stopped, each message under an id that is
// tried again until it is stored, and counts them.
type traffic struct {
	f       *fleet
	stopped atomic.Bool
	wg      sync.WaitGroup
	mu      sync.Mutex
	stored  map[string]uint64 // by id
	longest time.Duration
}

func (f *fleet) publishing(topic string, each int) *traffic {
	tr := &traffic{f: f, stored: map[string]uint64{}}
	for w := range each {
		tr.wg.Go(func() {
			for i := 0; !tr.stopped.Load(); i++ {
				tr.one(topic, fmt.Sprintf("%d.%d", w, i), w+i)
			}
		})
	}
	return tr
}

func (tr *traffic) one(topic, id string, turn int) {
	began := time.Now()
	for range 100 {
		names := tr.f.names()
		on := names[turn%len(names)]
		a := tr.f.tryPublish(on, topic, "t."+id, "NATS/1.0\r\nNats-Msg-Id: "+id+"\r\n\r\n", id)
		var seq uint64
		if _, err := fmt.Sscanf(a, `{"stream":"`+topic+`","seq":%d`, &seq); err == nil {
			tr.mu.Lock()
			tr.stored[id] = seq
			tr.longest = max(tr.longest, time.Since(began))
			tr.mu.Unlock()
			return
		}
		if !strings.Contains(a, "503") && a != "" {
			tr.f.Errorf("message %s on %s: %q", id, on, a)
			return
		}
		turn++
	}
	tr.f.Errorf("message %s was never stored", id)
}

func (tr *traffic) stop() map[string]uint64 {
	tr.stopped.Store(true)
	tr.wg.Wait()
	tr.f.Logf("%d messages, the longest wait was %s", len(tr.stored), tr.longest)
	return tr.stored
}

// holds checks that a topic has what was stored, each once and where it was said to be.
func (f *fleet) holds(topic string, stored map[string]uint64) {
	f.Helper()
	for _, n := range f.names() {
		t, _ := f.nodes[n].Topic("A", topic)
		if t.Data() == nil {
			continue
		}
		found := map[string]uint64{}
		msgs, _, err := t.Data().Read(nil, 1, 1<<30, 0, nil)
		if err != nil {
			f.Fatal(err)
		}
		for i := range msgs {
			id := string(msgs[i].Payload)
			if _, twice := found[id]; twice {
				f.Errorf("%s has %s twice", n, id)
			}
			found[id] = uint64(msgs[i].Sequence)
		}
		if !maps.Equal(found, stored) {
			for id, seq := range stored {
				if found[id] != seq {
					f.Errorf("%s has %s at %d, it was said to be at %d", n, id, found[id], seq)
				}
			}
			f.Errorf("%s has %d messages, %d were stored", n, len(found), len(stored))
		}
	}
}

func TestATopicGetsOtherReplicasWhileItIsUsed(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	cfg := replicated(1, "T", "t.>")
	cfg.Duplicates = time.Hour
	f.create("a", cfg)
	f.notLeading("T")
	tr := f.publishing("T", 3)
	for _, r := range []int{3, 1, 3} {
		f.rescale("T", r)
		f.settled("T", r)
	}
	stored := tr.stop()
	f.same("T")
	f.holds("T", stored)
	// What was stored before the moves is still known.
	for id, seq := range stored {
		if a, want := f.publish("b", "T", "t.x", "NATS/1.0\r\nNats-Msg-Id: "+id+"\r\n\r\n", "x"), fmt.Sprintf(`{"stream":"T","seq":%d,"duplicate":true}`, seq); a != want {
			t.Errorf("%q, want %q", a, want)
		}
		break
	}
}

// TestAMoveOutlivesWhoeverMakesIt kills a leader while topics move: the source's, the
// target's, group 0's.
func TestAMoveOutlivesWhoeverMakesIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a while")
	}
	f := startFleet(t, 3)
	f.create("a", func() topics.Config {
		c := replicated(3, "T", "t.>")
		c.Duplicates = time.Hour
		return c
	}())
	f.notLeading("T")
	f.calm()
	tr := f.publishing("T", 2)
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for i := range 4 {
		first := f.nodes[f.names()[0]]
		topic, _ := first.Topic("A", "T")
		var others []*Group
		for _, g := range first.AllGroups() {
			if g.Replicas() == 3 && g != topic.Group() && g.Leader() != "" {
				others = append(others, g)
			}
		}
		if len(others) == 0 {
			t.Fatal("no other group of three")
		}
		to := others[i%len(others)]
		f.wait("the move begins", func() (bool, string) {
			err := f.nodes[f.names()[0]].MoveTopic(timed(t), topic, to.ID())
			return err == nil, fmt.Sprint(err)
		})
		<-time.After(time.Duration(rng.IntN(40)) * time.Millisecond)
		victim := []string{topic.Group().Leader(), to.Leader(), first.CatalogueLeader()}[i%3]
		if victim != "" && slices.Contains(f.names(), victim) {
			f.kill(victim)
			f.wait("others lead", func() (bool, string) {
				n := f.nodes[f.names()[0]]
				topic, _ := n.Topic("A", "T")
				return n.CatalogueLeader() != victim && topic.Group().Leader() != victim && topic.Group().Leader() != "", ""
			})
			f.join(victim)
		}
		f.settled("T", 3)
		f.calm()
	}
	stored := tr.stop()
	f.same("T")
	f.holds("T", stored)
}

func TestConsumersKeepTheirPlaceInAMove(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	cfg := replicated(1, "T", "t.>")
	cfg.Retention = topics.RetainWorkQueue
	made := f.create("a", cfg)
	f.notLeading("T")
	s := f.nodes["a"]
	for i := range 50 {
		f.publish("a", "T", "t.x", "", fmt.Sprint(i))
	}
	if _, err := s.CreateConsumer(timed(t), made, "c", topics.ConsumerConfig{Name: "c", Durable: "c", AckPolicy: topics.AckExplicit, AckWait: time.Hour, MaxAckPending: 100}); err != nil {
		t.Fatal(err)
	}
	lead := f.nodes[made.Group().Leader()]
	topic, _ := lead.Topic("A", "T")
	c := topic.Data().Consumer("c")
	c.Lead(topic.Data())
	for range 20 {
		seq, ok := c.Next(lead.Now())
		if !ok {
			t.Fatal("nothing to deliver")
		}
		c.Deliver(seq, lead.Now())
		if seq%3 == 0 {
			c.Ack(seq, lead.Now())
		}
	}
	for _, rec := range c.Records(nil) {
		body := append(topics.AppendConsumerRecord(nil, topic.ID(), c.ID()), rec.Body...)
		if _, err := topic.Group().ask(timed(t), rec.Kind, body); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := s.DeleteMessage(timed(t), made, 30); err != nil || !ok {
		t.Fatal(ok, err)
	}
	before := topic.Data()
	want, state := before.Consumer("c"), before.State()
	f.rescale("T", 3)
	f.settled("T", 3)
	f.same("T")
	for _, n := range f.names() {
		topic, _ := f.nodes[n].Topic("A", "T")
		var got *consumer.Consumer
		if got = topic.Data().Consumer("c"); got == nil || !got.Equal(want) {
			t.Errorf("%s: the consumer isn't where it was", n)
		}
		if st := topic.Data().State(); st != state {
			t.Errorf("%s: %+v, want %+v", n, st, state)
		}
	}
	if n, err := s.Purge(timed(t), made, store.Purge{}); err != nil || n != state.Messages {
		t.Errorf("purged %d: %v", n, err)
	}
	if err := s.DeleteTopic(timed(t), "A", "T"); err != nil {
		t.Fatal(err)
	}
}

func TestAMoveThatCantEndGoesBack(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	made := f.create("a", replicated(1, "T", "t.>"))
	f.notLeading("T")
	f.calm()
	keep := made.Group().Nodes()[0]
	f.wait("the holder leads all", func() (bool, string) {
		return f.nodes[keep].CatalogueLeader() != "", ""
	})
	for i := range 10 {
		f.publish("a", "T", "t.x", "", fmt.Sprint(i))
	}
	// Asked for and taken back at once: whichever step the move has come to, it ends.
	for range 3 {
		f.rescale("T", 3)
		cfg := *made.Config()
		cfg.Replicas = 1
		_, err := f.nodes["a"].UpdateTopic(timed(t), "A", cfg)
		if err != nil && !strings.Contains(err.Error(), "10124") {
			t.Fatal(err)
		}
		r := 1
		if err != nil {
			r = 3
		}
		f.settled("T", r)
		if a := f.publish("b", "T", "t.x", "", "more"); !strings.Contains(a, `"seq":`) {
			t.Errorf("answer %q", a)
		}
		f.rescale("T", 1)
		f.settled("T", 1)
	}
	if n := made.Data(); n != nil && n.State().Messages != 13 {
		t.Errorf("%d messages, want 13", n.State().Messages)
	}
}

// TestATopicIsDeletedWhileItMoves: nothing is left of it, in either group.
func TestATopicIsDeletedWhileItMoves(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	f.calm()
	for i := range 4 {
		made := f.create("a", replicated(1, "T", "t.>"))
		f.notLeading("T")
		for range 50 {
			f.publish("b", "T", "t.x", "", strings.Repeat("x", 1000))
		}
		f.rescale("T", 3)
		<-time.After(time.Duration(i*i) * 3 * time.Millisecond)
		if err := f.nodes["c"].DeleteTopic(timed(t), "A", "T"); err != nil {
			t.Fatal(err)
		}
		f.wait("it is gone everywhere", func() (bool, string) {
			for _, n := range f.names() {
				for _, r := range f.nodes[n].replicas() {
					if r.data.Topic(made.ID()) != nil || r.data.Hides(made.ID()) {
						if r.isLeader() {
							f.nodes[n].cl.dropArrivals(r.group, r.data.Arrivals())
						}
						return false, fmt.Sprintf("%s has it in group %d", n, r.id)
					}
				}
			}
			return true, ""
		})
	}
}
