package broker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
)

// graveyard is some nodes with a message that died.
type graveyard struct {
	*testing.T
	ctx   context.Context
	nodes []*Broker
	js    jetstream.JetStream
}

func newGraveyard(t *testing.T, nodes int) *graveyard {
	t.Helper()
	g := &graveyard{T: t}
	var cancel context.CancelFunc
	g.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	var routes []string
	for i := range nodes {
		text := fmt.Sprintf("port: -1\nserver_name: n%d\njetstream { store_dir: %q }\n", i, t.TempDir())
		if nodes > 1 {
			text += fmt.Sprintf("cluster { name: graves, port: -1, routes: [%s] }\n", strings.Join(routes, ", "))
		}
		path := filepath.Join(t.TempDir(), "test.conf")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := config.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(Config{Options: o, StoreDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- b.Run(context.Background()) }()
		t.Cleanup(func() {
			if err := errors.Join(b.Close(), <-ran); err != nil {
				t.Error(err)
			}
		})
		<-b.Ready()
		g.nodes = append(g.nodes, b)
		if nodes > 1 {
			u, err := url.Parse(b.ClusterURL())
			if err != nil {
				t.Fatal(err)
			}
			routes = append(routes, fmt.Sprintf("%q", "nats-route://"+u.Host))
		}
	}
	nc, err := nats.Connect(g.nodes[0].ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if g.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *graveyard) until(what string, ok func() bool) {
	g.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			g.Fatalf("waited in vain for %s", what)
		}
	}
}

// stream makes a stream that keeps the subject of its name, and returns its group as the
// first node knows it.
func (g *graveyard) stream(name string, replicas int) topics.GroupID {
	g.Helper()
	g.until("stream "+name, func() bool {
		_, err := g.js.CreateOrUpdateStream(g.ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: replicas})
		return err == nil
	})
	return g.group(name)
}

func (g *graveyard) group(name string) topics.GroupID {
	t, ok := g.nodes[0].durable.Load().state.Topic(config.GlobalAccount, name)
	if !ok {
		g.Fatalf("no topic %s", name)
	}
	return t.Group().ID()
}

// dying makes a consumer of FROM whose letters go to a subject.
func (g *graveyard) dying(letters string) jetstream.Consumer {
	g.Helper()
	c, err := g.js.CreateConsumer(g.ctx, "FROM", jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 200 * time.Millisecond, MaxDeliver: 1,
		Metadata: map[string]string{"herald.dlq.subject": letters},
	})
	if err != nil {
		g.Fatal(err)
	}
	return c
}

// kill has a message die, soon.
func (g *graveyard) kill(c jetstream.Consumer) {
	g.Helper()
	if _, err := g.js.Publish(g.ctx, "FROM", []byte("it dies")); err != nil {
		g.Fatal(err)
	}
	if _, err := c.Next(); err != nil {
		g.Fatal(err)
	}
}

// leader returns the node that leads a topic's group, and the topic as it knows it.
func (g *graveyard) leader(name string) (b *Broker, topic *state.Topic) {
	g.Helper()
	g.until("a leader of "+name, func() bool {
		for _, n := range g.nodes {
			if t, ok := n.durable.Load().state.Topic(config.GlobalAccount, name); ok && t.Data() != nil && t.Group().IsLeader() && !t.Moving() {
				b, topic = n, t
			}
		}
		return b != nil
	})
	return b, topic
}

func (g *graveyard) stored(name string) uint64 {
	g.Helper()
	s, err := g.js.Stream(g.ctx, name)
	if err != nil {
		g.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// pending is what the replicated copy of the consumer has.
func (g *graveyard) pending() (n int) {
	_, t := g.leader("FROM")
	t.Data().LookAt("c", func(c *consumer.Consumer) { n = c.NumAckPending() })
	return n
}

// boxes returns how many consumers the topics know that send letters.
func (g *graveyard) boxes() (n int) {
	for _, b := range g.nodes {
		for _, group := range b.durable.Load().state.Groups() {
			if group.IsLeader() {
				n += len(group.Store().Letterboxes())
			}
		}
	}
	return n
}

// TestALetterThatComesLateIsStoredOnce: a leader begins a parcel and is held up when it
// sends it. Its successor finds the parcel, stores it and gives the message up. Then come,
// late, what another leader may have declared, the parcel again and again, and the first
// leader's own.
func TestALetterThatComesLateIsStoredOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	for where, replicas := range map[string]int{"another group": 1, "the same group": 3} {
		t.Run(where, func(t *testing.T) {
			g := newGraveyard(t, 3)
			g.stream("FROM", 3)
			g.stream("DEAD", replicas)
			c := g.dying("DEAD")
			first, from := g.leader("FROM")
			held, release := make(chan *state.Guarded, 100), make(chan struct{})
			sends := func(x *state.Guarded) {
				held <- x
				<-release
			}
			first.durable.Load().letters.sends.Store(&sends)
			t.Cleanup(func() { close(release) })
			g.kill(c)
			late := <-held
			var next string
			for _, n := range g.nodes {
				if n != first {
					next = n.durable.Load().state.NodeID()
				}
			}
			g.until("another node to lead", func() bool {
				_ = from.Group().Transfer(g.ctx, next)
				n, _ := g.leader("FROM")
				return n != first
			})
			g.until("the successor to give the message up", func() bool { return g.pending() == 0 })
			if n := g.stored("DEAD"); n != 1 {
				t.Fatalf("the successor stored %d letters", n)
			}
			_, dead := g.leader("DEAD")
			if _, err := dead.Group().DeclareProducer(g.ctx, late.Guard.Producer, late.Guard.Epoch); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if r, err := dead.Group().AskGuarded(g.ctx, late); err != nil || r.Verdict == topics.GuardNext {
					t.Errorf("the late letter: %+v, %v", r, err)
				}
			}
			if n := g.stored("DEAD"); n != 1 || g.pending() != 0 {
				t.Errorf("%d letters, %d pending, wanted 1 and 0", n, g.pending())
			}
			g.kill(c) // and it goes on
			g.until("the next letter", func() bool { return g.stored("DEAD") == 2 && g.pending() == 0 })
		})
	}
}

// TestALetterWhoseTopicMovesIsStoredOnce: the letters' topic moves to another group before
// its answer is known, and with it what it knows.
func TestALetterWhoseTopicMovesIsStoredOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	g := newGraveyard(t, 3)
	g.stream("FROM", 3)
	before := g.stream("DEAD", 1)
	g.dying("DEAD")
	node, from := g.leader("FROM")
	l := &node.durable.Load().letters
	dead, ok := l.Keeper(config.GlobalAccount, "DEAD")
	if !ok {
		t.Fatal("nobody keeps DEAD")
	}
	p := &delivery.Parcel{
		Account: config.GlobalAccount, Subject: "DEAD", From: from.ID(), Consumer: from.Data().ConsumerID("c"), Number: 5, To: dead,
		Letters: []delivery.Letter{{Payload: []byte("it died")}, {Payload: []byte("and it")}},
	}
	ask := func(what string, want delivery.Fate, f func() (delivery.Fate, error)) {
		t.Helper()
		var got delivery.Fate
		var err error
		g.until(what, func() bool { got, err = f(); return got != delivery.Unknown })
		if got != want || g.stored("DEAD") != 2 {
			t.Errorf("%s: %d, %v, with %d letters; wanted %d and 2", what, got, err, g.stored("DEAD"), want)
		}
	}
	send := func() (delivery.Fate, error) { return l.Send(g.ctx, p) }
	ask("send", delivery.Stored, send)
	g.stream("DEAD", 3)
	g.until("the topic to move", func() bool { return g.group("DEAD") != before && g.stored("DEAD") == 2 })
	ask("send again", delivery.Stored, send)
	ask("close what is stored", delivery.Stored, func() (delivery.Fate, error) { return l.Close(g.ctx, p) })
	p.Number = 9
	ask("close what was never sent", delivery.Closed, func() (delivery.Fate, error) { return l.Close(g.ctx, p) })
	ask("send what is closed", delivery.Closed, send)
	p.Number = 7
	ask("send what is behind", delivery.Closed, send)
	if p.Behind != 9 {
		t.Errorf("the topic is told to be at %d, and is at 9", p.Behind)
	}
	p.Number = 10
	if err := g.js.DeleteStream(g.ctx, "DEAD"); err != nil {
		t.Fatal(err)
	}
	g.until("a topic that is deleted to take nothing", func() bool { got, _ := send(); return got == delivery.Closed })
}

// TestWhatIsKnownOfAConsumerGoesWithIt, and not before.
func TestWhatIsKnownOfAConsumerGoesWithIt(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	g := newGraveyard(t, 3)
	g.stream("FROM", 3)
	g.stream("DEAD", 1)
	var late atomic.Pointer[state.Guarded]
	keep := func(x *state.Guarded) { late.Store(x) }
	for _, n := range g.nodes {
		n.durable.Load().letters.sends.Store(&keep)
	}
	g.kill(g.dying("DEAD"))
	g.until("the letter", func() bool { return g.stored("DEAD") == 1 && g.pending() == 0 })
	sweep := func() {
		for _, n := range g.nodes {
			n.durable.Load().letters.sweep(g.ctx, true)
		}
	}
	sweep()
	if n := g.boxes(); n != 1 {
		t.Fatalf("%d boxes while there is the consumer", n)
	}
	if err := g.js.DeleteConsumer(g.ctx, "FROM", "c"); err != nil {
		t.Fatal(err)
	}
	g.until("the topic to forget the consumer", func() bool { sweep(); return g.boxes() == 0 })
	_, dead := g.leader("DEAD")
	if r, err := dead.Group().AskGuarded(g.ctx, late.Load()); err != nil || r.Verdict == topics.GuardNext || g.stored("DEAD") != 1 {
		t.Errorf("its late letter: %+v, %v, %d are stored", r, err, g.stored("DEAD"))
	}
	g.kill(g.dying("DEAD")) // another one of that name
	g.until("the letter of the next consumer", func() bool { return g.stored("DEAD") == 2 && g.pending() == 0 })
	if err := g.js.DeleteStream(g.ctx, "FROM"); err != nil {
		t.Fatal(err)
	}
	g.until("the topic to forget a topic's consumers", func() bool { sweep(); return g.boxes() == 0 })
}
