package replication

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestMembersChangeUnderKills moves the group over five nodes, three at a time, while
// nodes are killed, cut off and lose their disks. Never more than one of the members is
// away, so everything must go on, and nothing acknowledged may be lost.
func TestMembersChangeUnderKills(t *testing.T) {
	t.Parallel()
	rounds := 6
	if os.Getenv("HERALD_LONG") != "" {
		rounds = 60
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	l := newLab(t, 1, nil, "a", "b", "c", "+d", "+e")
	for _, name := range []string{"d", "e"} {
		l.start(name, false)
	}
	members := []string{"a", "b", "c"}
	var mu sync.Mutex // held where nodes come and go
	stop := make(chan struct{})
	var acked []string
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			data := fmt.Sprint("entry ", i)
			mu.Lock()
			var groups []*Group
			for _, ln := range l.running() {
				groups = append(groups, ln.g)
			}
			mu.Unlock()
			for _, g := range groups {
				if _, _, err := g.Propose([]byte(data)).Result(); err == nil {
					acked = append(acked, data)
					break
				} else if errors.Is(err, ErrOutcomeUnknown) {
					break
				}
			}
			linger(2 * time.Millisecond)
		}
	})
	for range rounds {
		out := r.IntN(3)
		in := l.names[r.IntN(5)]
		if !slices.Contains(members, in) {
			members[out] = in
		}
		hurt := l.names[r.IntN(5)]
		l.members(members...)
		linger(time.Duration(r.IntN(300)) * time.Millisecond)
		mu.Lock()
		l.stop(hurt)
		mu.Unlock()
		linger(time.Duration(r.IntN(1500)) * time.Millisecond)
		wipe := r.IntN(2) == 0
		if wipe {
			l.wipe(hurt)
		}
		mu.Lock()
		l.restart(hurt, members...)
		l.members(members...)
		mu.Unlock()
		l.awaitVoters(members...)
	}
	close(stop)
	writer.Wait()
	l.propose("last")
	t.Logf("%d entries acknowledged", len(acked))
	for _, name := range members {
		ln := l.nodes[name]
		l.await(name+" to have all", func() bool { return slices.Contains(ln.list.all(), "last") })
		has := map[string]bool{}
		for _, e := range ln.list.all() {
			has[e] = true
		}
		for _, e := range acked {
			if !has[e] {
				t.Fatalf("%s lacks %q, which was acknowledged", name, e)
			}
		}
	}
}
