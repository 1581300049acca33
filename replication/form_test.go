package replication

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/replication/peer/peertest"
)

func TestFormDecide(t *testing.T) {
	fresh := func(names ...string) (ps []formPeer) {
		for _, n := range names {
			ps = append(ps, formPeer{n, formFresh})
		}
		return ps
	}
	for _, c := range []struct {
		what     string
		promised string
		pending  int
		peers    []formPeer
		alone    bool
		step     formStep
		fresh    int
	}{
		{"alone, in the time of grace", "", 0, nil, true, formWait, 1},
		{"alone", "", 0, nil, false, formFound, 1},
		{"a route doesn't answer", "", 1, fresh("c"), false, formWait, 2},
		{"the smallest", "", 0, fresh("c", "d"), false, formFound, 3},
		{"not the smallest", "", 0, fresh("a", "c"), false, formWait, 3},
		{"promised", "c", 0, fresh("c"), false, formWait, 2},
		{"one hasn't said yet", "", 0, []formPeer{{"c", formUnknown}}, false, formWait, 1},
		{"somebody has formed", "", 1, append(fresh("a"), formPeer{"c", formDone}), false, formJoin, 0},
		{"no routes, but dialed", "", 0, fresh("c"), true, formFound, 2},
	} {
		step, n := formDecide("b", c.promised, c.pending, c.peers, c.alone)
		if step != c.step || n != c.fresh {
			t.Errorf("%s: step %d of %d, want %d of %d", c.what, step, n, c.step, c.fresh)
		}
	}
}

// formResult is what Form returned on a node.
type formResult struct {
	name     string
	found    bool
	expected int
}

// formed starts nodes in the order of names, some time apart, and returns what Form
// said. Nodes that found say that they have.
func formed(t *testing.T, c *peertest.Cluster, dirs map[string]string, apart time.Duration, names ...string) []formResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), labWait)
	defer cancel()
	results := make([]formResult, len(names))
	nodes := make([]*Node, len(names))
	var forming sync.WaitGroup
	for i, name := range names {
		net := c.Reopen(name)
		n, err := Open(Config{Dir: dirs[name], Network: net, Fatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
		net.Start()
		forming.Go(func() {
			found, expected, err := Form(ctx, n, net)
			if err != nil {
				t.Error(err)
			}
			results[i] = formResult{name, found, expected}
			if _, err := n.StartGroup(0, &list{}, StartOptions{Found: found}); err != nil {
				t.Error(err)
			}
		})
		linger(apart)
	}
	forming.Wait()
	for i, n := range nodes {
		c.Kill(names[i])
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	return results
}

func founders(results []formResult) (names []string) {
	for _, r := range results {
		if r.found {
			names = append(names, r.name)
		}
	}
	return names
}

func dirsOf(t *testing.T, names ...string) map[string]string {
	dirs := map[string]string{}
	for _, n := range names {
		dirs[n] = filepath.Join(t.TempDir(), n)
	}
	return dirs
}

func TestFormInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}, {"b", "a", "c"}} {
		for _, apart := range []time.Duration{0, 150 * time.Millisecond} {
			c := peertest.NewUnopened(t, "a", "b", "c")
			results := formed(t, c, dirsOf(t, order...), apart, order...)
			if f := founders(results); len(f) != 1 || f[0] != "a" {
				t.Errorf("order %v, %v apart: founded by %v", order, apart, f)
			}
			for _, r := range results {
				if r.found && r.expected != 3 {
					t.Errorf("order %v: %d nodes were expected", order, r.expected)
				}
			}
		}
	}
}

func TestFormBySeeds(t *testing.T) {
	t.Parallel()
	// Only "m" is known to the others, and it knows nobody.
	c := peertest.NewUnopened(t, "m", "a", "z")
	c.Change(func(o *peer.Options) {
		o.Routes = nil
		if o.Name != "m" {
			o.Routes = []string{c.Addr("m")}
		}
	})
	dirs := dirsOf(t, "m", "a", "z")
	results := formed(t, c, dirs, 100*time.Millisecond, "z", "a", "m")
	first := founders(results)
	if len(first) != 1 {
		t.Fatalf("founded by %v", first)
	}
	if first[0] == "m" {
		return // it met one of them first, and that is allowed; then all is lost with it
	}
	// The seed loses its disk, and comes back first.
	dirs["m"] = filepath.Join(t.TempDir(), "m")
	results = formed(t, c, dirs, 500*time.Millisecond, "m", "a", "z")
	if f := founders(results); len(f) != 0 {
		t.Errorf("founded once more by %v", f)
	}
}

func TestWipedFounderFoundsNoMore(t *testing.T) {
	t.Parallel()
	l := newLab(t, 0, nil, "a", "b", "c")
	l.propose("one")
	l.stop("a")
	l.wipe("a")
	ln := l.open("a")
	ctx, cancel := context.WithTimeout(context.Background(), labWait)
	defer cancel()
	if found, _, err := Form(ctx, l.nodes["b"].node, l.net.Net("b")); err != nil || found {
		t.Fatalf("%v, %v", found, err)
	}
	if found, _, err := Form(ctx, ln.node, l.net.Net("a")); err != nil || found {
		t.Fatalf("%v, %v", found, err)
	}
	ln.list = &list{}
	var err error
	if ln.g, err = ln.node.StartGroup(0, ln.list, StartOptions{}); err != nil {
		t.Fatal(err)
	}
	ln.g.SetMembers([]string{"a", "b", "c"}, nil)
	l.awaitSame("one")
	l.awaitVoters("a", "b", "c")
}

// TestFormPromises lets nodes ask each other in random order: no two may get the
// promises of the same node at once.
func TestFormPromises(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		nodes := map[string]*forming{}
		names := []string{"a", "b", "c", "d"}
		for _, n := range names {
			nodes[n] = &forming{name: n, kicks: make(chan struct{}, 1), state: formFresh}
		}
		// Each knows some of the others, and all of those know it.
		knows := map[string][]string{}
		for i, n := range names {
			for _, m := range names[i+1:] {
				if r.IntN(3) > 0 || m == "d" {
					knows[n], knows[m] = append(knows[n], m), append(knows[m], n)
				}
			}
		}
		var founded []string
		var mu sync.Mutex
		var asking sync.WaitGroup
		for _, n := range names {
			asking.Go(func() {
				if nodes[n].askAll(context.Background(), fakeForm{n, knows[n], nodes}, fakeForm{n, knows[n], nodes}.list()) {
					mu.Lock()
					founded = append(founded, n)
					mu.Unlock()
				}
			})
		}
		asking.Wait()
		if len(founded) > 1 {
			t.Fatalf("seed %d: founded by %v, who know %v", seed, founded, knows)
		}
	}
}

type fakeForm struct {
	name  string
	knows []string
	nodes map[string]*forming
}

func (f fakeForm) tell(formState) {}

func (f fakeForm) list() (ps []formPeer) {
	for _, n := range f.knows {
		ps = append(ps, formPeer{n, formFresh})
	}
	return ps
}

func (f fakeForm) peers() ([]formPeer, int, int) { return f.list(), 0, len(f.knows) }

func (f fakeForm) ask(ctx context.Context, node string, r formRequest) (a formAnswer, err error) {
	body := fmt.Sprintf(`{"Release":%v}`, r.Release)
	b, err := f.nodes[node].answer(ctx, f.name, []byte(body))
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(b, &a)
}
