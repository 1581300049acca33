package state

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// fleet is a cluster in one process.
type fleet struct {
	testing.TB
	dir    string
	seeds  []string
	offset map[string]time.Duration
	with   []func(*Options)

	mu    sync.Mutex
	nodes map[string]*member
	acks  map[string]chan string // by reply subject
}

type member struct {
	*State
	name string
	net  *peer.Network
}

// Deliver implements Replier for all nodes together.
func (f *fleet) Deliver(to, _, _ string, header, payload []byte) bool {
	f.mu.Lock()
	c := f.acks[to]
	f.mu.Unlock()
	if c != nil {
		c <- string(header) + string(payload)
	}
	return true
}

func (f *fleet) Answer(_, reply string, header, payload []byte) {
	f.Deliver(reply, reply, "", header, payload)
}

func (f *fleet) Flush() {}

// fleetsInShort are the tests of several nodes that run in short mode too, which is how
// the race detector runs them.
var fleetsInShort = []string{
	"TestTopicsAreServedByEveryNode", "TestChangesWorkOnEveryNode", "TestBatchesWorkFromEveryNode", "TestOrderHoldsWhileTheLeadMoves",
	"TestATopicGetsOtherReplicasWhileItIsUsed", "TestWhatComesWhileALimboGivesIsAnswered",
	"TestANodeThatIsKilledIsReplacedAndComesBack", "TestReplicasAgreeAtEveryMarker",
}

// startFleet starts nodes a, b, c… that form a cluster.
func startFleet(t testing.TB, n int, with ...func(*Options)) *fleet {
	t.Helper()
	if name, _, _ := strings.Cut(t.Name(), "/"); testing.Short() && !slices.Contains(fleetsInShort, name) {
		t.Skip("SKIPPED: several nodes take long; without -short it runs")
	}
	f := &fleet{TB: t, dir: t.TempDir(), nodes: map[string]*member{}, acks: map[string]chan string{}, offset: map[string]time.Duration{}, with: with}
	t.Cleanup(f.stopAll)
	f.startMany(n)
	return f
}

func (f *fleet) startMany(n int) {
	f.Helper()
	// All ports first: each node is told of all of them.
	var nets []*peer.Network
	for range n {
		f.seeds = append(f.seeds, freeAddr(f))
	}
	for i := range n {
		nets = append(nets, f.network(string(rune('a'+i)), f.seeds[i]))
	}
	for _, net := range nets {
		f.open(net)
	}
	f.ready()
}

func freeAddr(t testing.TB) string {
	t.Helper()
	n, err := peer.Open(peer.Options{Name: "x", Cluster: "x"})
	if err != nil {
		t.Fatal(err)
	}
	a := n.Addr().String()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return a
}

func (f *fleet) network(name, addr string) *peer.Network {
	f.Helper()
	var host string
	var port int
	host, p, _ := strings.Cut(addr, ":")
	if _, err := fmt.Sscan(p, &port); err != nil {
		f.Fatal(err)
	}
	net, err := peer.Open(peer.Options{Name: name, Cluster: "t", Host: host, Port: port, Routes: f.seeds, Log: testLog(name)})
	if err != nil {
		f.Fatal(err)
	}
	return net
}

func testLog(name string) *slog.Logger {
	if os.Getenv("HERALD_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", name)
}

func (f *fleet) open(net *peer.Network) *member {
	f.Helper()
	name := net.Name()
	o := Options{
		Dir: filepath.Join(f.dir, name), Network: net, Replier: func(*front.Account) Replier { return f },
		Fatal: func(err error) { f.Errorf("%s: fatal: %v", name, err) }, Log: testLog(name), ClockOffset: f.offset[name],
	}
	for _, w := range f.with {
		w(&o)
	}
	s, err := Open(o)
	if err != nil {
		f.Fatal(err)
	}
	net.Start()
	m := &member{s, name, net}
	if err := s.Start(Hooks{}); err != nil {
		f.Fatal(err)
	}
	f.mu.Lock()
	f.nodes[name] = m
	f.mu.Unlock()
	return m
}

// join starts a node that is new to the cluster, or again.
func (f *fleet) join(name string) *member {
	f.Helper()
	i := int(name[0] - 'a')
	for len(f.seeds) <= i {
		f.seeds = append(f.seeds, freeAddr(f))
	}
	m := f.open(f.network(name, f.seeds[i]))
	f.ready()
	return m
}

// kill ends a node without handing anything over.
func (f *fleet) kill(name string) {
	f.Helper()
	m := f.nodes[name]
	f.mu.Lock()
	delete(f.nodes, name)
	f.mu.Unlock()
	if err := m.net.Close(); err != nil {
		f.Error(err)
	}
	if err := m.Close(); err != nil {
		f.Errorf("close %s: %v", name, err)
	}
}

func (f *fleet) stopAll() {
	var all sync.WaitGroup
	for _, m := range f.nodes {
		all.Go(func() {
			if err := m.Close(); err != nil {
				f.Errorf("close %s: %v", m.name, err)
			}
			if err := m.net.Close(); err != nil {
				f.Error(err)
			}
		})
	}
	all.Wait()
}

func (f *fleet) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for n := range f.nodes {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// wait waits for a condition.
func (f *fleet) wait(what string, cond func() (bool, string)) {
	f.Helper()
	last := ""
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		ok, why := cond()
		if ok {
			return
		}
		last = why
	}
	f.Fatalf("waited in vain until %s: %s", what, last)
}

func (f *fleet) ready() {
	f.Helper()
	f.wait("all nodes are ready", func() (bool, string) {
		for _, n := range f.names() {
			if ok, why := f.nodes[n].Ready(); !ok {
				return false, n + ": " + why
			}
		}
		return true, ""
	})
}

// calm waits until nothing is left to plan.
func (f *fleet) calm() {
	f.Helper()
	f.wait("the cluster is calm", func() (bool, string) {
		for _, n := range f.names() {
			c := f.nodes[n].cl
			if !f.nodes[n].IsCatalogueLeader() {
				continue
			}
			for _, g := range f.nodes[n].tables().groups {
				who, led := c.led(g.ID)
				if who == "" || !g.Open || len(g.Leaving) > 0 || !complete(g, &led) {
					return false, fmt.Sprintf("group %+v led by %q as %+v", *g, who, led)
				}
			}
			return true, ""
		}
		return false, "nobody leads the catalogue"
	})
}

func timed(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (f *fleet) create(on string, cfg topics.Config) *Topic {
	f.Helper()
	topic, _, err := f.nodes[on].CreateTopic(timed(f), "A", cfg)
	if err != nil {
		f.Fatalf("create %s on %s: %v", cfg.Name, on, err)
	}
	return topic
}

// publish captures a message on a node and returns the answer, "" when none came.
func (f *fleet) publish(on string, topic, subject, header, payload string) string {
	f.Helper()
	if t, ok := f.nodes[on].Topic("A", topic); !ok {
		f.Fatalf("%s doesn't know topic %s, %v", on, topic, t)
	}
	return f.tryPublish(on, topic, subject, header, payload)
}

// tryPublish is publish from any goroutine; "" also where the node or topic isn't there.
func (f *fleet) tryPublish(on string, topic, subject, header, payload string) string {
	f.mu.Lock()
	m := f.nodes[on]
	f.mu.Unlock()
	if m == nil {
		return ""
	}
	t, ok := m.Topic("A", topic)
	if !ok {
		return ""
	}
	f.mu.Lock()
	reply := fmt.Sprintf("_R.%s.%d", on, len(f.acks))
	c := make(chan string, 16)
	f.acks[reply] = c
	f.mu.Unlock()
	t.Group().Capture([]front.Captured{{
		Topic: t.ID(), Subject: []byte(subject), Reply: []byte(reply), Header: []byte(header), Payload: []byte(payload),
	}})
	select {
	case a := <-c:
		return a
	case <-time.After(10 * time.Second):
		return ""
	}
}

// replicated returns a config with so many replicas.
func replicated(r int, name string, subjects ...string) topics.Config {
	cfg := conf(name, subjects...)
	cfg.Replicas = r
	return cfg
}

// same waits until all replicas of a topic hold the same.
func (f *fleet) same(topic string) {
	f.Helper()
	f.wait("the replicas of "+topic+" hold the same", func() (bool, string) {
		var digests, details []string
		for _, n := range f.names() {
			t, ok := f.nodes[n].Topic("A", topic)
			if !ok || !slices.Contains(t.Group().Nodes(), n) {
				continue
			}
			if t.Data() == nil {
				return false, n + " has no data"
			}
			d, err := t.Data().Digest()
			if err != nil {
				f.Fatal(err)
			}
			digests = append(digests, fmt.Sprint(d))
			details = append(details, fmt.Sprintf("%s: group %d, %d moves, here %d, moving %t, %+v", n, t.Group().ID(), t.moves.Load(), t.Data().Moves(), t.Moving(), t.Data().State()))
		}
		return len(slices.Compact(slices.Clone(digests))) == 1, fmt.Sprint(digests, details)
	})
}
