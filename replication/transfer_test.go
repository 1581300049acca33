package replication

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestTransfersUnderLoad hands the lead around while entries are proposed, with
// campaigns in between that disturb it. Every transfer ends in 5 s, nothing that was
// acknowledged is lost, and afterwards the group takes proposals (hashicorp/raft #696).
// HERALD_LONG=1 makes it a thousand.
func TestTransfersUnderLoad(t *testing.T) {
	t.Parallel()
	n := 40
	if os.Getenv("HERALD_LONG") != "" {
		n = 1000
	}
	l := newLab(t, 1, nil, "a", "b", "c")
	l.propose("one")
	var acked sync.Map
	var count, unknown atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for w := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				data := strconv.Itoa(w) + " " + strconv.Itoa(i)
				for _, ln := range l.running() {
					_, _, err := ln.g.Propose([]byte(data)).Result()
					if errors.Is(err, ErrNotLeader) {
						continue
					}
					if err == nil {
						acked.Store(data, true)
						count.Add(1)
					} else {
						unknown.Add(1)
					}
					break
				}
				linger(time.Millisecond)
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	done, refused := 0, 0
	var longest, settled time.Duration
	for done+refused < n {
		leader := l.leader()
		to := l.names[r.IntN(3)]
		if to == leader.name {
			to = ""
		}
		if r.IntN(10) == 0 {
			other := l.nodes[l.names[r.IntN(3)]]
			load.Go(other.g.Campaign)
		}
		began := time.Now()
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := leader.g.Transfer(one, to)
		cancel()
		took := time.Since(began)
		l.leader()
		settled += time.Since(began)
		longest = max(longest, took)
		if took > 5*time.Second {
			t.Errorf("a transfer took %v", took)
		}
		switch {
		case err == nil:
			done++
		case errors.Is(err, ErrNotLeader): // it was disturbed
		default:
			refused++
			t.Logf("%s to %q after %v: %v", leader.name, to, took, err)
		}
	}
	stop()
	load.Wait()
	t.Logf("%d of %d transfers, the longest took %v, another led after %v on average; %d entries acknowledged, %d unknown", done, n, longest, settled/time.Duration(n), count.Load(), unknown.Load())
	if done < n*3/4 {
		t.Errorf("%d of %d transfers failed", refused, n)
	}
	l.propose("last")
	l.awaitSame("last")
	has := map[string]bool{}
	for _, e := range l.nodes["a"].list.all() {
		has[e] = true
	}
	acked.Range(func(k, _ any) bool {
		if !has[k.(string)] {
			t.Errorf("%q was acknowledged and is lost", k)
		}
		return true
	})
	for _, name := range l.names {
		l.await("the lead of "+name, func() bool {
			leader := l.leader()
			if leader.name == name {
				return true
			}
			one, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = leader.g.Transfer(one, name)
			return false
		})
		l.propose("through " + name)
	}
}
