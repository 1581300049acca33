package peer

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestFollowersAreToldWhatIsCommitted without an entry that would tell them: of what
// they have, and no more; and raft hears nothing of it.
func TestFollowersAreToldWhatIsCommitted(t *testing.T) {
	a := open(t, "a")
	b := open(t, "b", a.Addr().String())
	ta, tb := a.Transport(1, "a1"), b.Transport(1, "b1")
	ta.Notice = time.Millisecond
	got := make(chan raft.AppendEntriesRequest, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case rpc := <-tb.Consumer():
				r := rpc.Command.(*raft.AppendEntriesRequest)
				got <- *r
				rpc.Respond(&raft.AppendEntriesResponse{Term: r.Term, Success: true}, nil)
			case <-tb.ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = tb.Close()
		<-done
	})
	a.Start()
	b.Start()
	wait(t, "the connection", func() bool { return a.link("b") != nil && b.link("a") != nil })

	entries := func(from, to uint64) (logs []*raft.Log) {
		for i := from; i <= to; i++ {
			logs = append(logs, &raft.Log{Index: i, Term: 2})
		}
		return logs
	}
	first := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 3, PrevLogTerm: 1, LeaderCommitIndex: 3, Entries: entries(4, 5)}
	if err := ta.AppendEntries("b1", "b", first, &raft.AppendEntriesResponse{}); err != nil {
		t.Fatal(err)
	}
	<-got
	p, err := ta.AppendEntriesPipeline("b1", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	told := func(prev, commit uint64) {
		t.Helper()
		if r := <-got; len(r.Entries) > 0 || r.Term != 2 || r.PrevLogEntry != prev || r.PrevLogTerm != 2 || r.LeaderCommitIndex != commit {
			t.Fatalf("not what was expected: %+v", r)
		}
	}

	ta.Committed(4) // acknowledged before there was a pipeline
	told(5, 4)
	ta.Committed(8) // it has no more than five of them
	told(5, 5)
	req := &raft.AppendEntriesRequest{Term: 2, PrevLogEntry: 5, PrevLogTerm: 2, LeaderCommitIndex: 5, Entries: entries(6, 9)}
	if _, err := p.AppendEntries(req, &raft.AppendEntriesResponse{}); err != nil {
		t.Fatal(err)
	}
	if r := <-got; len(r.Entries) != 4 {
		t.Fatalf("not the entries: %+v", r)
	}
	told(9, 8) // now it has the rest
	if f := <-p.Consumer(); f.Request() != req {
		t.Fatal("raft was given an answer to what it didn't ask")
	}
	wait(t, "the last answer", func() bool { q := p.(*pipeline); q.mu.Lock(); defer q.mu.Unlock(); return q.acked.commit == 8 })
	ta.Committed(8) // known
	ta.Committed(7)
	if n := ta.notices.Load(); n != 3 || len(p.Consumer()) > 0 {
		t.Errorf("%d notices, %d answers for raft", n, len(p.Consumer()))
	}
}
