package peer

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/wire"
)

func open(t *testing.T, name string, routes ...string) *Network {
	t.Helper()
	n, err := Open(Options{Name: name, Cluster: "c", Secret: "s", Routes: routes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(20 * time.Second); !cond(); <-ticker.C {
		if time.Now().After(end) {
			t.Fatal("still waiting for: " + what)
		}
	}
}

// follower answers like one that has everything, and counts.
func follower(t *testing.T, tr *Transport) (appends, heartbeats func() int) {
	t.Helper()
	counts := make(chan [2]int, 1)
	counts <- [2]int{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case rpc := <-tr.Consumer():
				r := rpc.Command.(*raft.AppendEntriesRequest)
				c := <-counts
				if r.PrevLogEntry == 0 {
					c[1]++
				} else {
					c[0]++
				}
				counts <- c
				rpc.Respond(&raft.AppendEntriesResponse{Term: r.Term, Success: r.Term < 9}, nil)
			case <-tr.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = tr.Close()
		<-done
	})
	get := func(i int) func() int {
		return func() int {
			c := <-counts
			counts <- c
			return c[i]
		}
	}
	return get(0), get(1)
}

// TestAnEmptyAppendThatSaysNothingIsDropped and isn't answered: raft must not take it
// for contact with the follower.
func TestAnEmptyAppendThatSaysNothingIsDropped(t *testing.T) {
	a := open(t, "a")
	b := open(t, "b", a.Addr().String())
	ta, tb := a.Transport(1, "a1"), b.Transport(1, "b1")
	appends, heartbeats := follower(t, tb)
	a.Start()
	b.Start()
	wait(t, "the connection", func() bool { return a.link("b") != nil && b.link("a") != nil })
	p, err := ta.AppendEntriesPipeline("b1", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	send := func(term, prev, commit uint64, answered bool) {
		t.Helper()
		before := appends()
		req := &raft.AppendEntriesRequest{Term: term, PrevLogEntry: prev, PrevLogTerm: 1, LeaderCommitIndex: commit}
		if _, err := p.AppendEntries(req, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
		if answered {
			if f := <-p.Consumer(); f.Request() != req {
				t.Fatal("an answer to something else")
			}
		} else if len(p.Consumer()) > 0 || appends() != before {
			t.Fatal("it was sent")
		}
	}
	send(1, 5, 4, true)
	send(1, 5, 4, false)
	send(1, 5, 5, true) // the commit index is news
	send(1, 5, 5, false)
	send(2, 5, 5, true) // as is the term
	send(2, 6, 5, true) // and where the log is
	send(2, 6, 5, false)
	// A heartbeat always goes, and one that isn't answered with yes ends the quiet.
	var resp raft.AppendEntriesResponse
	if err := ta.AppendEntries("b1", "b", &raft.AppendEntriesRequest{Term: 9}, &resp); err != nil || resp.Success || heartbeats() != 1 {
		t.Fatal(err, resp, heartbeats())
	}
	send(2, 6, 5, true)
	if ta.quiet.Load() != 3 {
		t.Errorf("%d were dropped", ta.quiet.Load())
	}
}

// TestStrangersCannotKeepPeersOut opens as many connections as the network lets in
// and says nothing on them.
func TestStrangersCannotKeepPeersOut(t *testing.T) {
	t.Parallel()
	a := open(t, "a")
	a.Start()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	for range 2 * guestsMax {
		c, err := net.Dial("tcp", a.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	wait(t, "the limit", func() bool {
		a.waiting.mu.Lock()
		defer a.waiting.mu.Unlock()
		return len(a.waiting.conns) == guestsHostMax
	})
	b := open(t, "b", a.Addr().String())
	b.Start()
	wait(t, "the connection", func() bool { return a.link("b") != nil })
	for _, c := range conns {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a stranger was kept: %v", err)
		}
	}
}

func TestTheOutboxPrefersWhatIsUrgentAndStarvesNobody(t *testing.T) {
	o := newOutbox(false)
	big := make([]byte, wire.FrameMax)
	for range 200 {
		for kind := range wire.Kinds {
			if kind.Max() >= len(big) {
				if err := o.push(kind, 1, newMessage(big)); err != nil && err != ErrFull {
					t.Fatal(err)
				}
			}
		}
	}
	if err := o.push(wire.Raft, 0, newMessage([]byte("urgent"))); err != nil {
		t.Fatal(err)
	}
	var b batch
	seen := map[wire.Kind]int{}
	for i := 0; seen[wire.Append] < 200; i++ {
		o.take(&b)
		r := wire.NewReader(bytes.NewReader(bytes.Join(b.vector, nil)))
		for {
			m, err := r.Next()
			if err != nil {
				break
			}
			seen[m.Kind]++
			if m.Kind == wire.Raft && i > 0 {
				t.Error("what is urgent waited")
			}
		}
	}
	if seen[wire.Stream] == 0 || seen[wire.Call] > 0 {
		t.Errorf("%v", seen)
	}
}

func TestCreditIsKept(t *testing.T) {
	o := newOutbox(false)
	chunk := make([]byte, ChunkBytesMax)
	for o.push(wire.Chunk, 7, newMessage(chunk)) == nil {
	}
	var b batch
	sent := 0
	for {
		if o.take(&b); b.bytes == 0 {
			break
		}
		sent += b.bytes
	}
	if sent < CreditBytes || sent > CreditBytes+2*ChunkBytesMax {
		t.Fatalf("%d bytes were sent on credit of %d", sent, CreditBytes)
	}
	o.addCredit(laneKey{wire.Chunk, 7}, ChunkBytesMax)
	if o.take(&b); b.bytes == 0 {
		t.Fatal("no more came with more credit")
	}
}
