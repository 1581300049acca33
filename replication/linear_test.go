package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// registerInput is a read, or a write of a value.
type registerInput struct {
	write bool
	value int
}

var registerModel = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		in := input.(registerInput)
		if in.write {
			return true, in.value
		}
		return output.(int) == state.(int), state
	},
	DescribeOperation: func(input, output any) string {
		if in := input.(registerInput); in.write {
			return fmt.Sprintf("write %d", in.value)
		}
		return fmt.Sprintf("read %v", output)
	},
}

// value is the register: what was written last.
func (l *list) value() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return 0
	}
	v, _ := strconv.Atoi(l.entries[len(l.entries)-1])
	return v
}

// history is what clients saw.
type history struct {
	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
}

func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

func (h *history) add(client int, in registerInput, out, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: int(out), Call: call, Return: end})
}

// client reads and writes through whatever node it meets. A write of unknown outcome
// may take effect at any time later; the client is a new one after it.
func (h *history) client(ctx context.Context, id int, groups func() []*labGroup, r *rand.Rand, next func() int) {
	for ctx.Err() == nil {
		all := groups()
		if len(all) == 0 {
			continue
		}
		n := all[r.IntN(len(all))]
		call := h.now()
		if r.IntN(2) == 0 {
			one, cancel := context.WithTimeout(ctx, 3*time.Second)
			err := n.g.Linearize(one)
			cancel()
			if err == nil {
				h.add(id, registerInput{}, int64(n.list.value()), call, h.now())
			}
		} else {
			v := next()
			_, _, err := n.g.Propose([]byte(strconv.Itoa(v))).Result()
			switch {
			case err == nil:
				h.add(id, registerInput{true, v}, 0, call, h.now())
			case errors.Is(err, ErrOutcomeUnknown):
				h.add(id, registerInput{true, v}, 0, call, 1<<60)
				id += 1000
			}
		}
		linger(time.Duration(r.IntN(4)) * time.Millisecond)
	}
}

// labGroup is a group with its state machine, as a client finds it.
type labGroup struct {
	g    *Group
	list *list
}

// TestRegisterIsLinearizable reads and writes a register while nodes are cut off,
// killed, restarted, and the lead is handed around. HERALD_LONG=1 takes longer.
func TestRegisterIsLinearizable(t *testing.T) {
	t.Parallel()
	rounds, names := 6, []string{"a", "b", "c"}
	if os.Getenv("HERALD_LONG") != "" {
		rounds, names = 40, []string{"a", "b", "c", "d", "e"}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	l := newLab(t, 1, nil, names...)
	var mu sync.Mutex
	alive := func() []*labGroup {
		mu.Lock()
		defer mu.Unlock()
		var gs []*labGroup
		for _, ln := range l.running() {
			gs = append(gs, &labGroup{ln.g, ln.list})
		}
		return gs
	}
	h := &history{began: time.Now()}
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	value := 0
	next := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		value++
		return value
	}
	for c := range 5 {
		clients.Go(func() { h.client(ctx, c, alive, rand.New(rand.NewPCG(seed, uint64(c))), next) })
	}
	for range rounds {
		name := names[r.IntN(len(names))]
		switch r.IntN(4) {
		case 0:
			l.isolate(name)
			linger(time.Duration(500+r.IntN(2500)) * time.Millisecond)
			l.net.HealAll()
		case 1:
			mu.Lock()
			l.stop(name)
			mu.Unlock()
			linger(time.Duration(r.IntN(1500)) * time.Millisecond)
			mu.Lock()
			l.restart(name, names...)
			mu.Unlock()
		case 2:
			for _, n := range alive() {
				one, cancel := context.WithTimeout(ctx, 3*time.Second)
				_ = n.g.Transfer(one, "")
				cancel()
			}
		case 3:
			l.net.CutOneWay(name, names[r.IntN(len(names))])
			linger(time.Duration(500+r.IntN(2500)) * time.Millisecond)
			l.net.HealAll()
		}
		linger(300 * time.Millisecond)
	}
	stop()
	clients.Wait()
	result, _ := porcupine.CheckOperationsVerbose(registerModel, h.ops, 2*time.Minute)
	t.Logf("%d operations: %s", len(h.ops), result)
	if result == porcupine.Illegal {
		t.Error("the history is not linearizable")
	}
	l.propose("1000000")
	l.awaitSame("1000000")
}

// TestSingleNodeBecomesACluster: the directory of a node that was alone goes on in a
// cluster of one, with its data, and others join it.
func TestSingleNodeBecomesACluster(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"", "a"} {
		l := prepareLab(t, 1, nil, "a", "b", "c")
		alone := openNode(t, Config{Dir: dir + "/" + id + "x", NodeID: id})
		g := startGroup(t, alone, 1, &list{})
		if _, _, err := g.Propose([]byte("from before")).Result(); err != nil {
			t.Fatal(err)
		}
		closeNode(t, alone)
		l.nodes["a"].dir = dir + "/" + id + "x"
		ln := l.start("a", true)
		l.propose("alone in a cluster")
		l.awaitSame("from before", "alone in a cluster")
		if name, leads := ln.g.Leader(); name != "a" || !leads {
			t.Errorf("the leader is %q, %v", name, leads)
		}
		l.start("b", false)
		l.start("c", false)
		l.members("a", "b", "c")
		l.awaitVoters("a", "b", "c")
		l.propose("three")
		l.awaitSame("from before", "three")
		l.stop("a")
		l.propose("without the first")
		l.restart("a", "a", "b", "c")
		l.awaitSame("without the first")
		l.stop("b")
		l.propose("the first votes")
	}
}
