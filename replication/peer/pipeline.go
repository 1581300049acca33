package peer

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/raftwire"
	"github.com/heraldmq/herald/replication/peer/wire"
)

const (
	// inFlightMax is how many AppendEntries of a pipeline wait for an answer: the
	// follower writes one to disk while the next ones are on their way.
	inFlightMax = 4
	// quietFor is how long an empty AppendEntries that repeats what was acknowledged
	// isn't sent.
	quietFor = 5 * time.Second
)

// pipeline sends AppendEntries without waiting for the answers.
//
// Between two entries raft sends an empty AppendEntries every now and then to each
// follower, which tells the commit index and nothing else. One that repeats what
// this follower has acknowledged on this connection (term, previous entry, commit
// index) is dropped, for at most five seconds. That is safe because it is dropped,
// not answered: raft only hears of answers, so a dropped request doesn't count as
// contact with the follower, keeps no lease, confirms no leadership to a reader
// (VerifyLeader) and acknowledges no entry; it is as if the network were slow. What
// keeps the lease and confirms leadership are the heartbeats, and those are always
// sent. They, and the five seconds, see to it that a leader that has been replaced still
// hears of the new term soon.
//
// An RPC that fails isn't reported to raft as one that was answered (raft would count
// it as contact): the pipeline breaks, raft hears of it when it sends next.
type pipeline struct {
	t      *Transport
	l      *link
	id     raft.ServerID
	slots  chan struct{}
	ready  chan raft.AppendFuture
	broken chan struct{} // closed with err set

	// order is held while a request is put in line, so that they are in the order in
	// which sent grows. Taken before mu; no I/O meanwhile.
	order sync.Mutex

	mu      sync.Mutex
	term    uint64   // of all requests
	sent    entryAt  // the last entry that was sent, or that the follower is known to have
	early   []*early // sent ahead and not answered yet, oldest first
	proved  *early   // the last of them that was answered with yes
	err     error
	acked   acked
	commit  uint64 // the highest commit index that was sent
	owed    uint64 // a commit index it wasn't told of for want of the entry
	header  raft.RPCHeader
	backlog []*appendFuture // answered and not reported; nil: reported at once
}

// acked is the last state that a follower has said yes to.
type acked struct {
	term, index, indexTerm, commit uint64
	doubts                         uint64
	at                             time.Time
}

// ackedBy is what a follower has that said yes to a request.
func ackedBy(args *raft.AppendEntriesRequest, doubts uint64, at time.Time) acked {
	a := acked{term: args.Term, index: args.PrevLogEntry, indexTerm: args.PrevLogTerm, commit: args.LeaderCommitIndex, doubts: doubts, at: at}
	if n := len(args.Entries); n > 0 {
		a.index, a.indexTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	}
	return a
}

// AppendEntriesPipeline implements raft.Transport.
func (t *Transport) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	l := t.n.link(nodeOf(target))
	if l == nil {
		return nil, ErrNoPeer
	}
	p := &pipeline{
		t: t, l: l, id: id, slots: make(chan struct{}, inFlightMax),
		ready: make(chan raft.AppendFuture, 2*inFlightMax), broken: make(chan struct{}),
	}
	t.commits.add(p)
	return p, nil
}

// AppendEntries implements raft.AppendPipeline. It waits while inFlightMax are on
// their way. args.Entries may be cut short, see Transport.AppendEntries.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	f := &appendFuture{start: time.Now(), args: args, resp: resp, done: make(chan struct{})}
	if p.saysNothing(args, f.start) {
		p.t.quiet.Add(1)
		return f, nil
	}
	select {
	case p.slots <- struct{}{}:
	case <-p.broken:
		return nil, p.error()
	case <-p.t.ctx.Done():
		return nil, raft.ErrTransportShutdown
	}
	shorten(args)
	sent, err := p.send(f)
	if err != nil {
		p.fail(err)
		return nil, err
	}
	if sent {
		p.l.writeNow()
	}
	return f, nil
}

// send puts a request in line, as far as it hasn't been sent ahead. False: all of it
// has, and its answer comes or came with that.
func (p *pipeline) send(f *appendFuture) (bool, error) {
	p.order.Lock()
	defer p.order.Unlock()
	p.mu.Lock()
	if err := p.err; err != nil {
		p.mu.Unlock()
		return false, err
	}
	joined, proved := p.join(f)
	if joined {
		p.mu.Unlock()
		if proved != nil {
			f.answer(proved)
			p.report(f)
		}
		return false, nil
	}
	args := p.rest(f.args)
	p.went(args)
	p.mu.Unlock()
	doubts := p.t.doubts.Load()
	return true, p.l.queue(wire.Append, uint32(p.t.group), f.start.Add(appendTimeout),
		func(rpc uint64) [][]byte { return raftwire.EncodeAppend(p.t.envelope(rpc, p.id), args) },
		func(status byte, body []byte, err error) { p.answered(f, doubts, status, body, err) })
}

// saysNothing reports whether a request may be dropped. One that can't be sent any
// more isn't dropped, so that raft hears of it.
func (p *pipeline) saysNothing(args *raft.AppendEntriesRequest, now time.Time) bool {
	if len(args.Entries) > 0 || p.t.n.link(p.l.name) != p.l {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.acked
	return p.err == nil && len(p.slots) == 0 && !a.at.IsZero() && now.Sub(a.at) < quietFor && a.doubts == p.t.doubts.Load() &&
		a.term == args.Term && a.index == args.PrevLogEntry && a.indexTerm == args.PrevLogTerm && a.commit == args.LeaderCommitIndex
}

// answered is called with the answer, in the order of the requests.
func (p *pipeline) answered(f *appendFuture, doubts uint64, status byte, body []byte, err error) {
	if p.note(f, doubts, status, body, err) {
		p.report(f)
	}
}

// note takes note of an answer, and tells whether raft shall hear of it.
func (p *pipeline) note(f *appendFuture, doubts uint64, status byte, body []byte, err error) bool {
	if err == nil {
		err = answerErr(p.l.name, status, body)
	}
	if err == nil {
		err = raftwire.DecodeResponse(body, f.resp)
	}
	f.err = err
	close(f.done)
	if err != nil {
		p.fail(err)
		return false
	}
	p.mu.Lock()
	if f.resp.Success && f.resp.Term <= f.args.Term {
		p.acked = ackedBy(f.args, doubts, f.start)
	} else {
		p.acked = acked{}
	}
	broken := p.err != nil
	owed := p.owed
	late := owed > 0 && p.acked.index >= owed
	p.mu.Unlock()
	if late {
		p.tellCommit(owed)
	}
	return !broken
}

// report hands an answer to raft. Raft takes it at once, as a rule; when it doesn't,
// a goroutine waits for it, and the slot stays taken.
func (p *pipeline) report(f *appendFuture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.backlog == nil {
		select {
		case p.ready <- f:
			<-p.slots
			return
		default:
		}
		if !p.t.n.begin() {
			return
		}
		p.backlog = []*appendFuture{}
		go p.reportBacklog()
	}
	p.backlog = append(p.backlog, f)
}

// reportBacklog ends with the backlog or the pipeline. The network waits for it.
func (p *pipeline) reportBacklog() {
	defer p.t.n.work.Done()
	for {
		p.mu.Lock()
		if len(p.backlog) == 0 {
			p.backlog = nil
			p.mu.Unlock()
			return
		}
		f := p.backlog[0]
		p.backlog = p.backlog[1:]
		p.mu.Unlock()
		select {
		case p.ready <- f:
			<-p.slots
		case <-p.broken:
			return
		case <-p.t.ctx.Done():
			return
		}
	}
}

func (p *pipeline) fail(err error) {
	p.t.commits.remove(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		close(p.broken)
	}
}

func (p *pipeline) error() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Consumer implements raft.AppendPipeline.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.ready }

// Close implements raft.AppendPipeline. What is on its way isn't reported any more.
func (p *pipeline) Close() error {
	p.fail(raft.ErrPipelineShutdown)
	return nil
}

// appendFuture is one AppendEntries of a pipeline.
type appendFuture struct {
	start time.Time
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	done  chan struct{}
	err   error
}

func (f *appendFuture) Error() error {
	<-f.done
	return f.err
}

func (f *appendFuture) Start() time.Time                      { return f.start }
func (f *appendFuture) Request() *raft.AppendEntriesRequest   { return f.args }
func (f *appendFuture) Response() *raft.AppendEntriesResponse { return f.resp }
