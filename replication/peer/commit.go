package peer

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/raftwire"
	"github.com/heraldmq/herald/replication/peer/wire"
)

// Committed tells the transport up to which index entries are committed; it may be
// called by any goroutine, and never waits. Followers that the next entry doesn't
// tell within Notice are told by an AppendEntries without entries.
//
// Raft has a clock for that, which ticks for every follower of every group however
// quiet they are: with it slowed down, a follower would be up to a second behind. What
// is sent here is what raft itself might have sent: the position is one that the
// follower has acknowledged to this leader in this term, and the commit index is no
// larger than that position, so that nothing of another history can be meant. The
// answer isn't given to raft: as with the requests that are dropped, it neither counts
// as contact nor acknowledges anything.
func (t *Transport) Committed(index uint64) {
	c := &t.commits
	c.mu.Lock()
	if index <= c.index {
		c.mu.Unlock()
		return
	}
	c.index = index
	if len(c.pipelines) == 0 {
		c.mu.Unlock()
		return
	}
	if t.Notice > 0 {
		if !c.armed {
			c.armed, c.since = true, index
			if c.timer == nil {
				c.timer = time.AfterFunc(t.Notice, t.noticeDue)
			} else {
				c.timer.Reset(t.Notice)
			}
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	t.tellCommit()
}

// noticeDue tells those who haven't heard of what was committed when the timer was
// set. While entries follow each other they tell it themselves.
func (t *Transport) noticeDue() {
	c := &t.commits
	c.mu.Lock()
	c.armed = false
	quiet := true
	for _, p := range c.pipelines {
		quiet = quiet && !p.told(c.since)
	}
	if !quiet && c.since < c.index && t.ctx.Err() == nil {
		c.armed, c.since = true, c.index
		c.timer.Reset(t.Notice)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	t.tellCommit()
}

func (t *Transport) tellCommit() {
	c := &t.commits
	c.mu.Lock()
	index := c.index
	pipelines := append(make([]*pipeline, 0, 8), c.pipelines...)
	c.mu.Unlock()
	for _, p := range pipelines {
		p.tellCommit(index)
	}
}

// add takes up a pipeline, which goes on where its follower is.
func (c *commits) add(p *pipeline) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.before[p.id]; b.l == p.l {
		p.acked, p.commit, p.header = b.acked, b.commit, b.header
		p.term, p.sent = b.acked.term, entryAt{b.acked.index, b.acked.indexTerm}
	}
	c.pipelines = append(c.pipelines, p)
}

// remember takes note of what a follower said yes to outside a pipeline.
func (c *commits) remember(id raft.ServerID, at position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.before == nil {
		c.before = map[raft.ServerID]position{}
	}
	c.before[id] = at
}

func (c *commits) remove(p *pipeline) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, x := range c.pipelines {
		if x == p {
			c.pipelines = append(c.pipelines[:i:i], c.pipelines[i+1:]...)
			return
		}
	}
}

func (c *commits) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}

// told reports whether the follower has been sent, at least, that index is committed.
func (p *pipeline) told(index uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err != nil || p.commit >= index
}

// tellCommit tells the follower what is committed of what it has, unless it was told.
func (p *pipeline) tellCommit(index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.acked
	p.owed = 0
	if p.err != nil || p.commit >= index || a.at.IsZero() {
		return
	}
	if a.index < index {
		p.owed = index // told when it has it
		if index = a.index; p.commit >= index {
			return
		}
	}
	args := &raft.AppendEntriesRequest{
		RPCHeader: p.header, Term: a.term,
		PrevLogEntry: a.index, PrevLogTerm: a.indexTerm, LeaderCommitIndex: index,
	}
	f := &appendFuture{start: time.Now(), args: args, resp: &raft.AppendEntriesResponse{}, done: make(chan struct{})}
	doubts := p.t.doubts.Load()
	id, ok := p.l.ask(&pending{deadline: f.start.Add(appendTimeout), done: func(status byte, body []byte, err error) {
		p.note(f, doubts, status, body, err)
	}})
	if !ok {
		return
	}
	b := append([]byte{raftRequest}, raftwire.EncodeAppend(p.t.envelope(id, p.id), args)[0]...)
	if err := p.l.out.push(wire.Append, uint32(p.t.group), newMessage(b)); err != nil {
		p.l.take(id)
		return
	}
	p.commit = index
	p.t.notices.Add(1)
}
