package peer

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// pair is a leader's pipeline to a follower whose raft the test plays.
type pair struct {
	t    *testing.T
	tr   *Transport // the leader's
	from *Transport // the follower's
	p    *pipeline
}

// newPair connects a leader of term 2 with a follower that has entries 1 to 5.
func newPair(t *testing.T) *pair {
	t.Helper()
	a := open(t, "a")
	b := open(t, "b", a.Addr().String())
	x := &pair{t: t, tr: a.Transport(1, "a1"), from: b.Transport(1, "b1")}
	t.Cleanup(func() { _ = x.from.Close() })
	a.Start()
	b.Start()
	wait(t, "the connection", func() bool { return a.link("b") != nil && b.link("a") != nil })
	first := x.request(3, 5)
	answered := make(chan error, 1)
	go func() { answered <- x.tr.AppendEntries("b1", "b", first, &raft.AppendEntriesResponse{}) }()
	x.take(3, 4, 5).yes()
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	p, err := x.tr.AppendEntriesPipeline("b1", "b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	x.p = p.(*pipeline)
	return x
}

// entries makes the entries behind prev up to last.
func (x *pair) entries(prev, last uint64) (logs []*raft.Log) {
	for i := prev + 1; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 2, Data: fmt.Appendf(nil, "entry %d", i)})
	}
	return logs
}

func (x *pair) request(prev, last uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a1"), Addr: []byte("a")},
		Term:      2, PrevLogEntry: prev, PrevLogTerm: 2, LeaderCommitIndex: 3, Entries: x.entries(prev, last),
	}
}

// ask is raft asking for entries on the pipeline.
func (x *pair) ask(prev, last uint64) *raft.AppendEntriesRequest {
	x.t.Helper()
	args := x.request(prev, last)
	if _, err := x.p.AppendEntries(args, &raft.AppendEntriesResponse{}); err != nil {
		x.t.Fatal(err)
	}
	return args
}

// got is what the follower was sent.
type got struct {
	rpc raft.RPC
	r   *raft.AppendEntriesRequest
}

// take receives the next append, which must hold these entries behind prev.
func (x *pair) take(prev uint64, indexes ...uint64) got {
	x.t.Helper()
	rpc := <-x.from.Consumer()
	r := rpc.Command.(*raft.AppendEntriesRequest)
	same := r.PrevLogEntry == prev && len(r.Entries) == len(indexes) && r.Term == 2 && (r.PrevLogTerm == 2 || prev == 0)
	for i := range r.Entries {
		same = same && r.Entries[i].Index == indexes[i] && string(r.Entries[i].Data) == fmt.Sprintf("entry %d", indexes[i])
	}
	if !same {
		x.t.Fatalf("not entries %v behind %d: %+v", indexes, prev, r)
	}
	return got{rpc, r}
}

// nothing checks that the follower wasn't sent anything. What was sent before is there
// once something else has gone the same way: an append for a replica that doesn't exist.
func (x *pair) nothing() {
	x.t.Helper()
	if err := x.tr.AppendEntries("nobody", "b", x.request(5, 6), &raft.AppendEntriesResponse{}); !errors.Is(err, ErrWrongReplica) {
		x.t.Fatal(err)
	}
	if n := len(x.from.Consumer()); n > 0 {
		x.t.Fatalf("%d requests too many: %+v", n, (<-x.from.Consumer()).Command)
	}
}

func (g got) yes() { g.answer(true, 2) }

func (g got) answer(success bool, term uint64) {
	g.rpc.Respond(&raft.AppendEntriesResponse{Term: term, LastLog: 7, Success: success}, nil)
}

// heard is the next answer that raft is given, which must be to this request.
func (x *pair) heard(args *raft.AppendEntriesRequest) *raft.AppendEntriesResponse {
	x.t.Helper()
	f := <-x.p.Consumer()
	if f.Request() != args {
		x.t.Fatalf("raft was given an answer to %+v", f.Request())
	}
	if err := f.Error(); err != nil {
		x.t.Fatal(err)
	}
	return f.Response()
}

// proved waits for the follower's yes up to an entry, of which raft mustn't hear yet.
func (x *pair) proved(last uint64) {
	x.t.Helper()
	wait(x.t, "the answer", func() bool {
		x.p.mu.Lock()
		defer x.p.mu.Unlock()
		return x.p.proved != nil && x.p.proved.last == last
	})
	if len(x.p.Consumer()) > 0 {
		x.t.Fatal("raft was given an answer before it asked")
	}
}

func (x *pair) broken() {
	x.t.Helper()
	wait(x.t, "the pipeline to break", func() bool { return x.p.error() != nil })
	if _, err := x.p.AppendEntries(x.request(5, 6), &raft.AppendEntriesResponse{}); err == nil {
		x.t.Fatal("a broken pipeline takes requests")
	}
	if n := len(x.p.Consumer()); n > 0 {
		x.t.Fatalf("raft was given %d answers", n)
	}
}

func TestAnAnswerIsKeptUntilRaftAsks(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 6))
	x.tr.Ahead(x.entries(6, 8))
	x.take(5, 6).yes()
	x.take(6, 7, 8).yes()
	x.proved(8)
	for _, args := range []*raft.AppendEntriesRequest{x.ask(5, 6), x.ask(6, 8)} {
		if r := x.heard(args); !r.Success || r.Term != 2 {
			t.Errorf("the answer: %+v", r)
		}
	}
	x.nothing() // was sent twice
	if n := x.tr.ahead.Load(); n != 2 {
		t.Errorf("%d requests ahead", n)
	}
}

func TestRaftWaitsForTheAnswer(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 6))
	x.tr.Ahead(x.entries(6, 7))
	one, two := x.take(5, 6), x.take(6, 7)
	args := x.ask(5, 7) // both at once
	one.yes()
	x.proved(6)
	two.yes()
	if r := x.heard(args); !r.Success {
		t.Errorf("the answer: %+v", r)
	}
	x.nothing()
}

func TestOnlyTheRestIsSent(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 7))
	args := x.ask(5, 9) // raft has two more
	x.take(5, 6, 7).yes()
	x.proved(7)
	x.take(7, 8, 9).yes()
	x.heard(args)
	x.tr.Ahead(x.entries(9, 10))
	x.take(9, 10).yes()
	x.heard(x.ask(9, 10))
	x.nothing()
}

// TestAnOldAnswerIsNoSignOfLife: raft takes an answer for contact with the follower now.
func TestAnOldAnswerIsNoSignOfLife(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 6))
	x.take(5, 6).yes()
	x.proved(6)
	x.p.mu.Lock()
	x.p.proved.start = x.p.proved.start.Add(-provedFor)
	x.p.mu.Unlock()
	args := x.ask(5, 6)
	again := x.take(6) // without the entry
	if len(x.p.Consumer()) > 0 {
		t.Fatal("raft was given the old answer")
	}
	again.answer(false, 3)
	if r := x.heard(args); r.Success || r.Term != 3 {
		t.Errorf("the answer: %+v", r)
	}
}

func TestRaftHearsARefusalOnceItAsks(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 6))
	r := x.take(5, 6)
	args := x.ask(5, 6)
	r.answer(false, 3)
	if r := x.heard(args); r.Success || r.Term != 3 {
		t.Errorf("the answer: %+v", r)
	}
}

func TestARefusalBreaksThePipeline(t *testing.T) {
	for name, answer := range map[string]func(got){
		"no":         func(g got) { g.answer(false, 2) },
		"newer term": func(g got) { g.answer(true, 3) },
		"error":      func(g got) { g.rpc.Respond(nil, errors.New("closed")) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newPair(t)
			x.tr.Ahead(x.entries(5, 6))
			answer(x.take(5, 6))
			x.broken()
			x.tr.Ahead(x.entries(6, 7))
			x.nothing()
		})
	}
}

func TestALostConnectionBreaksThePipeline(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 6))
	x.take(5, 6)
	x.ask(5, 6)
	x.p.l.end(errSilent, false)
	x.broken()
}

// TestNotEverythingIsSentAhead: the follower must have, or have been sent, what is
// before, in the term in which this node leads.
func TestNotEverythingIsSentAhead(t *testing.T) {
	other := func(term uint64, logs []*raft.Log) []*raft.Log {
		for _, l := range logs {
			l.Term = term
		}
		return logs
	}
	for name, logs := range map[string]func(x *pair) []*raft.Log{
		"an older term":    func(x *pair) []*raft.Log { return other(1, x.entries(5, 6)) },
		"a newer term":     func(x *pair) []*raft.Log { return other(3, x.entries(5, 6)) },
		"one that it has":  func(x *pair) []*raft.Log { return x.entries(4, 6) },
		"one is missing":   func(x *pair) []*raft.Log { return x.entries(6, 7) },
		"many are missing": func(x *pair) []*raft.Log { x.tr.Entry = x.entry(nil); return x.entries(5+gapMax, 6+gapMax) },
		"it can't be read": func(x *pair) []*raft.Log { x.tr.Entry = x.entry(raft.ErrLogNotFound); return x.entries(6, 7) },
		"too much": func(x *pair) []*raft.Log {
			logs := x.entries(5, 7)
			logs[0].Data, logs[1].Data = make([]byte, appendBytesMax/2), make([]byte, appendBytesMax/2+1)
			return logs
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newPair(t)
			x.tr.Ahead(logs(x))
			x.nothing()
			args := x.ask(5, 6) // the ordinary way is open
			x.take(5, 6).yes()
			x.heard(args)
		})
	}
}

// entry reads the leader's log.
func (x *pair) entry(err error) func(uint64, *raft.Log) error {
	return func(index uint64, into *raft.Log) error {
		*into = *x.entries(index-1, index)[0]
		return err
	}
}

func TestWhatRaftHasNotSentGoesAlong(t *testing.T) {
	x := newPair(t)
	x.tr.Entry = x.entry(nil)
	x.tr.Ahead(x.entries(7, 8)) // 6 and 7 are written, raft is about to send them
	one, two := x.ask(5, 7), x.ask(7, 8)
	x.take(5, 6, 7, 8).yes()
	x.heard(one)
	x.heard(two)
	x.nothing()
}

func TestAFollowerThatIsSlowGetsNoMoreAhead(t *testing.T) {
	x := newPair(t)
	for i := range uint64(inFlightMax + 2) {
		x.tr.Ahead(x.entries(5+i, 6+i))
	}
	var waiting []got
	for i := range uint64(inFlightMax) {
		waiting = append(waiting, x.take(5+i, 6+i))
	}
	x.nothing()
	for _, g := range waiting {
		g.yes()
	}
	x.proved(5 + inFlightMax)
	args := x.ask(5, 7+inFlightMax)
	x.take(5+inFlightMax, 6+inFlightMax, 7+inFlightMax).yes()
	x.heard(args)
}

// TestNoCommitBeyondWhatIsSent: a follower takes the smaller one of that and its last
// index, which may be an entry of another leader's.
func TestNoCommitBeyondWhatIsSent(t *testing.T) {
	x := newPair(t)
	x.tr.Notice = 1 << 40 // never by itself
	x.tr.Committed(50)
	x.tr.Ahead(x.entries(5, 6))
	if g := x.take(5, 6); g.r.LeaderCommitIndex != 5 {
		t.Errorf("the commit index is %d", g.r.LeaderCommitIndex)
	}
	x.tr.commits.mu.Lock()
	x.tr.commits.index = 4
	x.tr.commits.mu.Unlock()
	x.tr.Ahead(x.entries(6, 7))
	if g := x.take(6, 7); g.r.LeaderCommitIndex != 4 {
		t.Errorf("the commit index is %d", g.r.LeaderCommitIndex)
	}
}

// TestANewTermBeginsAnew: what was sent in an older one says nothing.
func TestANewTermBeginsAnew(t *testing.T) {
	x := newPair(t)
	x.tr.Ahead(x.entries(5, 8))
	x.take(5, 6, 7, 8).yes()
	x.proved(8)
	args := x.request(5, 6)
	args.Term = 4
	if _, err := x.p.AppendEntries(args, &raft.AppendEntriesResponse{}); err != nil {
		t.Fatal(err)
	}
	rpc := <-x.from.Consumer()
	if r := rpc.Command.(*raft.AppendEntriesRequest); r.Term != 4 || len(r.Entries) != 1 || r.PrevLogEntry != 5 {
		t.Errorf("the request: %+v", r)
	}
	x.tr.Ahead(x.entries(6, 7)) // of term 2
	x.nothing()
}
