package broker

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
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

// dying makes a consumer of FROM whose letters go to a subject, with one message pending,
// and returns the burial of that.
func (g *graveyard) dying(letters string) *delivery.Burial {
	g.Helper()
	c, err := g.js.CreateConsumer(g.ctx, "FROM", jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, MaxDeliver: 2, Metadata: map[string]string{"herald.dlq.subject": letters},
	})
	if err != nil {
		g.Fatal(err)
	}
	if _, err := g.js.Publish(g.ctx, "FROM", []byte("it dies")); err != nil {
		g.Fatal(err)
	}
	if batch, err := c.Fetch(1); err != nil || (<-batch.Messages()) == nil {
		g.Fatalf("nothing was delivered: %v", err)
	}
	var b *delivery.Burial
	g.until("the delivery to be committed", func() bool {
		for _, n := range g.nodes {
			t, ok := n.durable.Load().state.Topic(config.GlobalAccount, "FROM")
			if !ok || t.Data() == nil || !t.Group().IsLeader() {
				continue
			}
			c := t.Data().Consumer("c")
			if c == nil || c.NumAckPending() == 0 {
				continue
			}
			given := topics.AppendConsumerRecord(nil, t.ID(), c.ID())
			b = &delivery.Burial{
				ID: delivery.BurialID(t.ID(), c.ID(), c.Epoch(), 1), Account: config.GlobalAccount, Subject: letters, Payload: []byte("it dies"),
				Header: []byte("NATS/1.0\r\nHerald-Dead-Sequence: 1\r\n\r\n"), Topic: t.ID(), Given: append(given, c.BurialRecord(1, 1)...),
			}
			return true
		}
		return false
	})
	return b
}

// bury is the leader's attempt that leads until it has been asked as often.
func (g *graveyard) bury(b *delivery.Burial, again bool, asked int) error {
	x := *b
	x.Again = again
	x.Leads = func() bool { asked--; return asked >= 0 }
	for _, n := range g.nodes {
		if t, ok := n.durable.Load().state.Topic(config.GlobalAccount, "FROM"); ok && t.Group().IsLeader() {
			return n.durable.Load().bury(g.ctx, &x)
		}
	}
	return replication.ErrNotLeader
}

func (g *graveyard) places() (n int) {
	for _, b := range g.nodes {
		for _, group := range b.durable.Load().state.Groups() {
			if group.IsLeader() {
				group.Store().Producers(func(id, _ uint64) bool {
					if id&topics.BurialProducer != 0 {
						n++
					}
					return true
				})
			}
		}
	}
	return n
}

// sweep has all nodes look twice, as far apart as is needed.
func (g *graveyard) sweep() {
	now := time.Now()
	for _, b := range g.nodes {
		l := &letters{}
		l.init(b.durable.Load(), nil)
		l.peers, l.age = b.durable.Load().letters.peers, letterAge
		l.sweep(g.ctx, now)
		l.sweep(g.ctx, now.Add(letterAge))
	}
}

func (g *graveyard) stored(name string) uint64 {
	g.Helper()
	s, err := g.js.Stream(g.ctx, name)
	if err != nil {
		g.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// pending is what the replicated copy of the consumer has; the engine, which knows nothing of
// these burials, believes that the message is still to be acknowledged.
func (g *graveyard) pending() int {
	for _, n := range g.nodes {
		if t, ok := n.durable.Load().state.Topic(config.GlobalAccount, "FROM"); ok && t.Data() != nil && t.Group().IsLeader() {
			return t.Data().Consumer("c").NumAckPending()
		}
	}
	return -1
}

// TestAPlaceThatALeaderLeftBehindIsSwept: the lead goes between the two commits of a burial
// in two groups, and between the second and the end of it.
func TestAPlaceThatALeaderLeftBehindIsSwept(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	g := newGraveyard(t, 3) // a node alone has one group
	g.stream("FROM", 3)
	g.stream("DEAD", 1)
	b := g.dying("DEAD")
	if err := g.bury(b, false, 0); !errors.Is(err, replication.ErrNotLeader) {
		t.Fatalf("buried by one that doesn't lead: %v", err)
	}
	if g.stored("DEAD") != 1 || g.places() != 1 || g.pending() != 1 {
		t.Fatalf("%d letters, %d places, %d pending, wanted one of each", g.stored("DEAD"), g.places(), g.pending())
	}
	g.sweep()
	if g.places() != 1 {
		t.Fatal("a place was swept whose message is not given up")
	}
	if err := g.bury(b, true, 1); err != nil { // the next leader, which goes before it is through
		t.Fatal(err)
	}
	if g.stored("DEAD") != 1 || g.pending() != 0 || g.places() != 1 {
		t.Fatalf("%d letters, %d pending, %d places, wanted 1, 0, 1", g.stored("DEAD"), g.pending(), g.places())
	}
	g.until("the place to be swept", func() bool { // which a replica that is behind may still want
		g.sweep()
		return g.places() == 0
	})
}

// TestALeaderOfThePastBuriesNothing: it goes on with a burial that its successor has been
// through, to the end.
func TestALeaderOfThePastBuriesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	for where, replicas := range map[string]int{"another group": 1, "the same group": 3} {
		t.Run(where, func(t *testing.T) {
			g := newGraveyard(t, 3)
			g.stream("FROM", 3)
			g.stream("DEAD", replicas)
			b := g.dying("DEAD")
			g.until("the successor to bury it", func() bool { return g.bury(b, false, 9) == nil })
			if err := g.bury(b, false, 9); !errors.Is(err, replication.ErrNotLeader) {
				t.Errorf("buried once more: %v", err)
			}
			if g.stored("DEAD") != 1 || g.pending() != 0 {
				t.Errorf("%d letters, %d pending, wanted 1 and 0", g.stored("DEAD"), g.pending())
			}
		})
	}
}

// TestALetterWhoseTopicMovesIsStoredOnce: the letters' topic moves to another group between
// the two commits.
func TestALetterWhoseTopicMovesIsStoredOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	g := newGraveyard(t, 3)
	g.stream("FROM", 3)
	before := g.stream("DEAD", 1)
	b := g.dying("DEAD")
	if err := g.bury(b, false, 0); !errors.Is(err, replication.ErrNotLeader) {
		t.Fatalf("buried by one that doesn't lead: %v", err)
	}
	g.stream("DEAD", 3)
	g.until("the topic to move", func() bool { return g.group("DEAD") != before && g.stored("DEAD") == 1 })
	g.until("the next leader to bury it", func() bool { return g.bury(b, true, 9) == nil })
	if g.stored("DEAD") != 1 || g.pending() != 0 {
		t.Errorf("%d letters, %d pending, wanted 1 and 0", g.stored("DEAD"), g.pending())
	}
	g.until("the place to be swept", func() bool { // which a replica that is behind may still want
		g.sweep()
		return g.places() == 0
	})
}
