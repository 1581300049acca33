package peer

import (
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/raftwire"
	"github.com/heraldmq/herald/replication/peer/wire"
)

const (
	// provedFor is how old an answer may be that raft is given to a request that needn't
	// be sent any more: raft takes it for a sign of life of that moment.
	provedFor = 100 * time.Millisecond
	// gapMax is how many entries that raft has not yet sent may go along with what is
	// sent ahead.
	gapMax = 64
)

var errRefusedAhead = errors.New("peer: what was sent ahead was refused")

// Ahead sends entries that this node, which leads, is about to write to its own log,
// so that the followers write at the same time and not afterwards. hashicorp/raft
// writes first and sends then. It is called before the write, on raft's main goroutine,
// and never waits for the network. Only for entries of the term in which this node
// leads, in the order of the log, and only where the process ends if the write fails.
//
// Raft allows it (thesis, 10.2.1). What is sent is an AppendEntries, the very one that
// raft itself will ask for once it has written: so a follower does with it what it
// always does, and nothing new can be in its log. It takes the entries if it has the one
// before them, of that term, and knows of no newer term; it drops a diverging end; it
// answers when they are on its disk; after a crash they are what any entry is that
// nobody was told of: there or not. All that must hold is said of the leader:
//
//   - It sends in a term what it has in its log in that term, and in that term it never
//     has something else there: the write that follows stores the same entries at the
//     same indexes, or ends the process, which then can lead in a later term only.
//   - It counts itself only after its own write. Raft does that, since it is called
//     from within that write.
//   - It counts a follower only for what raft asked that follower. An answer is kept
//     until raft asks, which it does after its own write. What it then asks isn't sent
//     again. An answer that came longer ago than provedFor is asked for anew, without
//     the entries: raft's lease would be prolonged by it.
//   - It tells no commit index beyond what it sends. (A follower takes the smaller one
//     of that and its own last index: it mustn't have entries behind those it was sent
//     whose place the leader hasn't confirmed.)
//
// A follower that isn't up to date gets nothing ahead, nor does one that has not
// answered inFlightMax such requests. Where raft has not yet sent a few entries before
// these, they go along, from Entry. If anything goes wrong the pipeline breaks, and raft
// goes back to one request at a time.
func (t *Transport) Ahead(logs []*raft.Log) {
	c := &t.commits
	c.mu.Lock()
	commit := c.index
	pipelines := append(make([]*pipeline, 0, 8), c.pipelines...)
	c.mu.Unlock()
	for _, p := range pipelines {
		if p.sendAhead(logs, commit) {
			p.l.writeSoon()
		}
	}
}

// early is an AppendEntries that raft has not asked for yet.
type early struct {
	*appendFuture
	last    uint64          // index of its last entry
	waiters []*appendFuture // what raft has asked since and it answers
}

// entryAt is a place in the log; zeros for the place before the first entry.
type entryAt struct{ index, term uint64 }

// sendAhead puts entries in line if they are the next ones for this follower.
func (p *pipeline) sendAhead(logs []*raft.Log, commit uint64) bool {
	p.order.Lock()
	defer p.order.Unlock()
	p.mu.Lock()
	sent, header := p.sent, p.header
	fit := p.err == nil && sent.index > 0 && len(header.ID) > 0 && p.term == logs[0].Term && len(p.early) < inFlightMax
	p.mu.Unlock()
	if !fit {
		return false
	}
	if logs = p.next(sent.index, logs); logs == nil {
		return false
	}
	last := logs[len(logs)-1]
	e := &early{last: last.Index, appendFuture: &appendFuture{
		start: time.Now(), resp: &raft.AppendEntriesResponse{}, done: make(chan struct{}),
		args: &raft.AppendEntriesRequest{
			RPCHeader: header, Term: last.Term, PrevLogEntry: sent.index, PrevLogTerm: sent.term,
			Entries: logs, LeaderCommitIndex: min(commit, sent.index),
		},
	}}
	doubts := p.t.doubts.Load()
	id, ok := p.l.ask(&pending{deadline: e.start.Add(appendTimeout), done: func(status byte, body []byte, err error) {
		p.earlyAnswered(e, doubts, status, body, err)
	}})
	if !ok {
		return false
	}
	p.mu.Lock()
	p.early = append(p.early, e)
	p.sent = entryAt{last.Index, last.Term}
	p.commit = max(p.commit, e.args.LeaderCommitIndex)
	p.mu.Unlock()
	segments := append([][]byte{{raftRequest}}, raftwire.EncodeAppend(p.t.envelope(id, p.id), e.args)...)
	if err := p.l.out.put(wire.Append, uint32(p.t.group), newMessage(segments...)); err != nil {
		p.l.take(id)
		p.fail(err)
		return false
	}
	p.t.ahead.Add(1)
	return true
}

// next returns the entries from the one after index on, up to the end of logs; nil if
// they can't be sent at once.
func (p *pipeline) next(index uint64, logs []*raft.Log) []*raft.Log {
	first := logs[0].Index
	if first <= index || first-index > gapMax || first-index > 1 && p.t.Entry == nil {
		return nil
	}
	if gap := int(first - index - 1); gap > 0 {
		all := make([]*raft.Log, gap, gap+len(logs))
		for i := range all {
			all[i] = &raft.Log{}
			if p.t.Entry(index+1+uint64(i), all[i]) != nil {
				return nil
			}
		}
		logs = append(all, logs...)
	}
	size := 0
	for _, e := range logs {
		size += len(e.Data) + len(e.Extensions)
	}
	if size > appendBytesMax && len(logs) > 1 {
		return nil
	}
	return logs
}

// earlyAnswered is called with the answer, in the order of the requests.
func (p *pipeline) earlyAnswered(e *early, doubts uint64, status byte, body []byte, err error) {
	heard := p.note(e.appendFuture, doubts, status, body, err)
	p.mu.Lock()
	waiters := e.waiters
	p.early = slices.DeleteFunc(p.early, func(x *early) bool { return x == e })
	yes := e.err == nil && e.resp.Success && e.resp.Term <= e.args.Term
	e.args.Entries = nil // don't keep them alive
	if yes {
		p.proved = e
	}
	p.mu.Unlock()
	for _, f := range waiters {
		f.answer(e)
		if heard {
			p.report(f)
		}
	}
	if heard && !yes && len(waiters) == 0 {
		p.fail(errRefusedAhead)
	}
}

// answer gives a request the answer to what was sent ahead.
func (f *appendFuture) answer(e *early) {
	*f.resp, f.err = *e.resp, e.err
	close(f.done)
}

// join lets a request of raft's wait for the answer to what was sent ahead, if that
// includes it. proved, when it isn't nil, is the answer. Holds order and mu.
func (p *pipeline) join(f *appendFuture) (joined bool, proved *early) {
	n := len(f.args.Entries)
	if n == 0 || f.args.Entries[n-1].Index > p.sent.index || f.args.Term != p.term {
		return false, nil
	}
	last := f.args.Entries[n-1].Index
	for _, e := range p.early {
		if e.last >= last {
			e.waiters = append(e.waiters, f)
			return true, nil
		}
	}
	if e := p.proved; e != nil && e.last >= last && f.start.Sub(e.start) < provedFor {
		return true, e
	}
	return false, nil
}

// rest returns what of a request must be sent: the entries behind those that were sent
// already, perhaps none. A yes to that is a yes to the request. Holds order and mu.
func (p *pipeline) rest(args *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	n := len(args.Entries)
	if n == 0 || args.Term != p.term || p.sent.index <= args.PrevLogEntry {
		return args
	}
	rest := *args
	i, _ := slices.BinarySearchFunc(args.Entries, p.sent.index+1, func(l *raft.Log, index uint64) int {
		return int(int64(l.Index) - int64(index))
	})
	rest.Entries = args.Entries[i:]
	rest.PrevLogEntry, rest.PrevLogTerm = p.sent.index, p.sent.term
	return &rest
}

// went takes note of a request of raft's that is being sent. Holds order and mu.
func (p *pipeline) went(args *raft.AppendEntriesRequest) {
	p.commit, p.header = max(p.commit, args.LeaderCommitIndex), args.RPCHeader
	if args.Term != p.term {
		p.term, p.sent = args.Term, entryAt{}
	}
	to := entryAt{args.PrevLogEntry, args.PrevLogTerm}
	if n := len(args.Entries); n > 0 {
		to = entryAt{args.Entries[n-1].Index, args.Entries[n-1].Term}
	}
	if to.index > p.sent.index {
		p.sent = to
	}
}
