package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// nodes is the way to the others over the network itself.
type nodes struct{ p *place }

func (n nodes) Name() string { return n.p.net.Name() }
func (n nodes) Leader(g topics.GroupID) string {
	if group := n.p.Group(g); group != nil {
		return group.Leader()
	}
	return ""
}

func (n nodes) Call(ctx context.Context, node, method string, body []byte) ([]byte, error) {
	return n.p.net.Call(ctx, node, method, body)
}

func (n nodes) Handle(method string, h func(context.Context, string, []byte) ([]byte, error)) {
	n.p.net.Handle(method, h)
}

func (n nodes) OpenStream(ctx context.Context, node, method string, body []byte) (io.ReadCloser, error) {
	if (method == streamState || method == streamCheckpoint) && n.p.deaf.Load() {
		return nil, errors.New("asked in vain")
	}
	return n.p.net.OpenStream(ctx, node, method, body)
}

func (n nodes) HandleStream(method string, h func(context.Context, string, []byte, io.Writer) error) {
	n.p.net.HandleStream(method, h)
}

// fleet is three nodes in one process.
type fleet struct {
	testing.TB
	dir   string
	seeds []string
	nodes map[string]*place
	// change is done to what the nodes are opened with.
	change func(*state.Options, *Options)
}

func startFleet(t testing.TB) *fleet { return startFleetWith(t, func(*state.Options, *Options) {}) }

// fleetsInShort are the tests of three nodes that run in short mode too, which is how the
// race detector runs them.
var fleetsInShort = []string{
	"TestOutputIsThatOfTheBatchWhilePrimariesAreKilled", "TestADivergentStandbyIsRebuilt", "TestPassiveIsPreciseWhilePrimariesAreKilled",
	"TestOutputsFollowTheirTopicsWhileNodesAreKilled", "TestTakingOverIsTimed",
}

func startFleetWith(t testing.TB, change func(*state.Options, *Options)) *fleet {
	t.Helper()
	if name, _, _ := strings.Cut(t.Name(), "/"); testing.Short() && !slices.Contains(fleetsInShort, name) {
		t.Skip("SKIPPED: several nodes take long; without -short it runs")
	}
	f := &fleet{TB: t, dir: t.TempDir(), nodes: map[string]*place{}, change: change}
	for range 3 {
		n, err := peer.Open(peer.Options{Name: "x", Cluster: "x"})
		if err != nil {
			t.Fatal(err)
		}
		f.seeds = append(f.seeds, n.Addr().String())
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		f.join(name)
	}
	t.Cleanup(func() {
		for _, p := range f.nodes {
			p.close()
		}
	})
	f.ready()
	return f
}

func (f *fleet) join(name string) *place {
	f.Helper()
	host, port := "", 0
	addr := f.seeds[name[0]-'a']
	host, p, _ := strings.Cut(addr, ":")
	if _, err := fmt.Sscan(p, &port); err != nil {
		f.Fatal(err)
	}
	net, err := peer.Open(peer.Options{Name: name, Cluster: "t", Host: host, Port: port, Routes: f.seeds, Log: testLog(name)})
	if err != nil {
		f.Fatal(err)
	}
	f.nodes[name] = openWith(f, filepath.Join(f.dir, name), net, compile, f.change)
	return f.nodes[name]
}

func (f *fleet) kill(name string) {
	f.nodes[name].close()
	delete(f.nodes, name)
}

func (f *fleet) ready() {
	f.Helper()
	for name, p := range f.nodes {
		wait(f, name+" is ready", func() (bool, string) { return p.Ready() })
	}
}

func (f *fleet) leader() *place {
	for _, p := range f.nodes {
		if t, ok := p.Topic("A", "OUT"); ok && t.Group().IsLeader() {
			return p
		}
	}
	return nil
}

func (f *fleet) any() *place {
	for _, p := range f.nodes {
		return p
	}
	return nil
}

// level waits until the operator is at the same step on all nodes, with the same state.
func (f *fleet) level(id uint64) {
	f.Helper()
	wait(f, "the standbys are level", func() (bool, string) {
		texts := map[string]int{}
		for _, p := range f.nodes {
			u := p.ops.unit(unitKey{id: id}, nil)
			if u == nil || u.store.Load() == nil {
				return false, "no unit"
			}
			s, err := u.store.Load().Snapshot()
			if err != nil {
				f.Fatal(err)
			}
			var b strings.Builder
			fmt.Fprintln(&b, s.Seq())
			_ = s.Scan(nil, nil, func(k, v []byte) bool { fmt.Fprintf(&b, "%q=%q\n", k, v); return true })
			if err := s.Close(); err != nil {
				f.Fatal(err)
			}
			texts[b.String()]++
		}
		return len(texts) == 1, fmt.Sprint(len(texts), " states")
	})
}

func TestOutputIsThatOfTheBatchWhilePrimariesAreKilled(t *testing.T) {
	t.Parallel()
	for _, text := range []string{fmt.Sprintf(counting, "replay\nstate: {backend: pebble}"), fmt.Sprintf(windowing, "delta")} {
		t.Run(strings.Fields(text)[1], func(t *testing.T) {
			t.Parallel()
			f := startFleet(t)
			f.any().topics(3)
			for name, p := range f.nodes {
				wait(t, name+" knows the topics", func() (bool, string) {
					a, _ := p.Topic("A", "IN")
					b, _ := p.Topic("A", "OUT")
					return a != nil && b != nil && a.Data() != nil && b.Data() != nil, ""
				})
			}
			o := f.any().deploy(text)
			rng := rand.New(rand.NewPCG(3, 4))
			kills := 5
			if testing.Short() {
				kills = 2
			}
			sent := 0
			for range kills {
				for range 200 {
					f.any().publish(record(rng, sent))
					sent++
				}
				wait(t, "a leader", func() (bool, string) { return f.leader() != nil, "" })
				dead := f.leader().net.Name()
				f.kill(dead)
				for range 50 { // while nobody leads
					f.any().publish(record(rng, sent))
					sent++
				}
				f.join(dead)
				f.ready()
			}
			for range 100 {
				f.any().publish(record(rng, sent))
				sent++
			}
			var want []string
			wait(t, "the output", func() (bool, string) {
				in, _ := f.any().Topic("A", "IN")
				if in == nil || in.Data() == nil {
					return false, "no input"
				}
				messages, _, err := in.Data().Read(nil, 1, 1<<20, 0, nil)
				if err != nil {
					return false, err.Error()
				}
				var bodies []string
				for _, m := range messages {
					bodies = append(bodies, string(m.Payload))
				}
				want = batch(t, text, bodies)
				return same(f.any().output(), want)
			})
			f.level(o.ID)
			if step := "aggregate_1"; o.IDs[step] > 0 && o.Name == "counts" {
				for _, p := range f.nodes {
					p.sized(o.Name, step)
				}
			}
			if len(want) == 0 {
				t.Error("there was no output")
			}
		})
	}
}

func TestADivergentStandbyIsRebuilt(t *testing.T) {
	t.Parallel()
	for _, standby := range []string{"replay", "delta"} {
		t.Run(standby, func(t *testing.T) {
			t.Parallel()
			divergent(t, standby)
		})
	}
}

func divergent(t *testing.T, mode string) {
	f := startFleet(t)
	f.withTopics()
	o := f.any().deploy(fmt.Sprintf(counting, mode))
	f.any().publish(`{"k":"a","v":5}`)
	var standby *unit
	wait(t, "a standby with the first step", func() (bool, string) {
		for _, p := range f.nodes {
			if u := p.ops.unit(unitKey{id: o.ID}, nil); u != nil && !u.group.IsLeader() && u.store.Load() != nil && u.store.Load().Seq() > 0 {
				standby = u
				return true, ""
			}
		}
		return false, ""
	})
	s := standby.store.Load()
	var key, value []byte
	if err := s.Scan([]byte("s"), []byte("t"), func(k, v []byte) bool { key, value = k, v; return false }); err != nil || key == nil {
		t.Fatal("no state", err)
	}
	bad := append([]byte(nil), value...)
	bad[len(bad)-1] ^= 1
	if err := s.Apply(change(key, bad), s.Seq()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // with deltas the second step tells what is wrong with the first
		f.any().publish(fmt.Sprintf(`{"k":%q,"v":6}`, map[string]string{"replay": "a", "delta": "b"}[mode]))
		wait(t, "the output", func() (bool, string) { n := len(f.any().output()); return n == i+2, fmt.Sprint(n) })
	}
	wait(t, "the rebuilding", func() (bool, string) {
		r := standby.report()
		return r.Stats.Diverged == 1 && r.Stats.Rebuilt >= 1 && !r.Faulty, fmt.Sprintf("%+v", r.Stats)
	})
	f.level(o.ID)
}

// change is a delta that sets one key.
func change(key, v []byte) []byte {
	d := append([]byte{byte(len(key))}, key...)
	return append(append(d, byte(len(v)+1)), v...)
}
