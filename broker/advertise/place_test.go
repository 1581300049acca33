package advertise

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// fakeNet joins services by name.
type fakeNet struct {
	mu       sync.Mutex
	leader   string
	handlers map[string]map[string]func(context.Context, string, []byte) ([]byte, error)
}

func (n *fakeNet) lead(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leader = name
}

// fakePeers is a node's end of it, and its view of the catalogue they share.
type fakePeers struct {
	*memory
	net  *fakeNet
	name string
}

func (p *fakePeers) Name() string    { return p.name }
func (p *fakePeers) Nodes() []string { return []string{"x", "y"} }
func (p *fakePeers) Leader(topics.GroupID) string {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.net.leader
}

func (p *fakePeers) IsCatalogueLeader() bool { return p.Leader(0) == p.name }

func (p *fakePeers) Linearize(context.Context, topics.GroupID) error {
	if p.Leader(0) == "" {
		return replication.ErrNotLeader
	}
	return nil
}

func (p *fakePeers) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	p.net.mu.Lock()
	h := p.net.handlers[node][method]
	p.net.mu.Unlock()
	if h == nil {
		return nil, errors.New("no such peer")
	}
	return h(ctx, p.name, body)
}

func (p *fakePeers) Handle(method string, h func(context.Context, string, []byte) ([]byte, error)) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	if p.net.handlers[p.name] == nil {
		p.net.handlers[p.name] = map[string]func(context.Context, string, []byte) ([]byte, error){}
	}
	p.net.handlers[p.name][method] = h
}

// benches are the nodes x and y, of which x leads.
func benches(t *testing.T) (x, y *bench, net *fakeNet) {
	net = &fakeNet{leader: "x", handlers: map[string]map[string]func(context.Context, string, []byte) ([]byte, error){}}
	m := &memory{c: catalogue.New()}
	var all []*bench
	for _, name := range []string{"x", "y"} {
		b := &bench{T: t, m: m, bus: newBus(), clock: time.Unix(1000, 0)}
		p := &fakePeers{m, net, name}
		b.s = New(Options{Catalogue: p, Peers: p, Now: b.now, vouchEvery: 20 * time.Millisecond})
		b.s.enterAccount("A", b.bus)
		t.Cleanup(b.s.Close)
		all = append(all, b)
	}
	m.told = func(e catalogue.Event) {
		for _, b := range all {
			b.s.Changed(e)
		}
	}
	all[0].s.Lead(true)
	return all[0], all[1], net
}

func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("never: %s", what)
		}
	}
}

func TestAnyNodeTakesRequests(t *testing.T) {
	x, y, net := benches(t)
	events := x.bus.hear("$HERALD.ADV.EVENT.>")
	watch := y.bus.hear("_INBOX.w")
	y.s.accept(request{account: "A", verb: "LIST", payload: []byte(`{"watch":true}`), reply: "_INBOX.w", client: 7, respond: func(p []byte) { t.Errorf("answered %s", p) }})
	y.next(watch) // watching
	y.next(watch) // caught up
	if got := y.ask(1, "PUT", `{"name":"a","subject":"s"}`); got["advertisement"] == nil {
		t.Fatal(got)
	}
	x.event(events, "added", "a")
	if got := y.parse(y.next(watch)[len("_INBOX.w "):]); got["event"] != "added" {
		t.Errorf("the watch says %v", got)
	}
	if got := x.ask(1, "GET", `{"name":"a"}`); got["advertisement"] == nil {
		t.Errorf("the other node says %v", got)
	}
	// A request waits for a leader.
	net.lead("")
	time.AfterFunc(100*time.Millisecond, func() { net.lead("x") })
	if got := y.ask(1, "LIST", ""); got["total"] != 1.0 {
		t.Errorf("list: %v", got)
	}
}

func TestANodeVouchesForItsClients(t *testing.T) {
	x, y, net := benches(t)
	events := y.bus.hear("$HERALD.ADV.EVENT.>")
	gone := x.bus.hear("$HERALD.ADV.EVENT.>")
	y.ask(1, "PUT", `{"name":"a","subject":"s"}`)
	x.ask(1, "PUT", `{"name":"b","subject":"t"}`) // the same number of another node
	x.event(gone, "added", "a")
	x.event(gone, "added", "b")
	until := func(b *bench, name string) time.Time {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		var last time.Time
		for k, e := range b.s.leases.all {
			for _, h := range e.holders {
				if k.Name == name && h.until.After(last) {
					last = h.until
				}
			}
		}
		return last
	}
	// Time goes by in small steps; the client's node keeps vouching.
	for range 10 {
		before := until(x, "a")
		x.pass(5 * time.Second)
		y.pass(5 * time.Second)
		x.eventually("vouched for again", func() bool { return until(x, "a").After(before) })
	}
	// The lead moves: the new leader hears of the connections of all.
	net.lead("y")
	x.s.Lead(false)
	y.s.Lead(true)
	y.eventually("x vouches for its client", func() bool {
		y.s.mu.Lock()
		defer y.s.mu.Unlock()
		e := y.s.leases.all[leaseKey{"A", catalogue.Key{Name: "b"}}]
		return e != nil && e.holders[holderName("x", 1)] != nil
	})
	x.s.disconnected(1)
	y.eventually("b has only its grace left", func() bool { return !until(y, "b").After(y.now().Add(10 * time.Second)) })
	y.pass(11 * time.Second)
	y.event(events, "expired", "b")
	y.s.disconnected(1)
	y.pass(11 * time.Second)
	y.event(events, "expired", "a")
}

func TestOneThatWasDeposedEndsNoLease(t *testing.T) {
	x, _, net := benches(t)
	x.ask(1, "PUT", `{"name":"a","subject":"s","lease":{"mode":"ttl","ttl":"1s","grace":"0s"}}`)
	net.lead("y") // x has not been told
	x.pass(time.Hour)
	x.eventually("swept", func() bool {
		x.s.mu.Lock()
		defer x.s.mu.Unlock()
		return len(x.s.leases.all[leaseKey{"A", catalogue.Key{Name: "a"}}].holders) == 0
	})
	<-time.After(50 * time.Millisecond)
	if all, _ := x.m.Advertisements("A"); len(all) != 1 {
		t.Error("withdrawn by one that doesn't lead")
	}
}
