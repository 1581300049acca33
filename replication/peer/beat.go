package peer

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/heraldmq/herald/replication/peer/wire"
)

// beatsOnce is how many heartbeats one of raft's stands for, see heartbeat.
const beatsOnce = 8

var errHung = errors.New("no heartbeat is sent while this node hangs")

// heartbeat sends a heartbeat of raft; with Beat, together with those of all others, and
// several more of them, one a beat, before raft is answered.
//
// Raft would ask for the next one after a pause of its own, for each follower of each
// group at another time: nodes on which nothing happens were woken mostly by that. Of
// the answers to all but the last raft hears through the follower's pipeline, where they
// count as contact just as here. So this goes on only while there is one: raft closes it
// when it doesn't lead any more, or before it stops its heartbeats to that follower.
func (t *Transport) heartbeat(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	failed := t.beats.failed(id)
	for n := 1; ; n++ {
		l := t.n.link(nodeOf(target))
		if l == nil {
			return t.beats.note(id, ErrNoPeer)
		}
		if t.Beat > 0 {
			select {
			case <-t.n.nextBeat(t.Beat):
			case <-t.ctx.Done():
				return raft.ErrTransportShutdown
			}
		}
		if n > 1 && t.Hung != nil && t.Hung() {
			return t.beats.note(id, errHung)
		}
		began := time.Now()
		err := t.appendOnce(l, id, args, resp, wire.Raft, 0)
		if err != nil || failed || n == beatsOnce || t.Beat == 0 || !resp.Success || resp.Term > args.Term {
			return t.beats.note(id, err)
		}
		if p := t.commits.pipeline(id, l); p == nil || !p.contact(args, *resp, began) {
			return nil
		}
	}
}

// beats knows to whom the last heartbeat failed: of the first that doesn't any more raft
// hears at once.
type beats struct {
	mu  sync.Mutex
	bad map[raft.ServerID]bool
}

func (b *beats) failed(id raft.ServerID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bad[id]
}

// note takes note of how a heartbeat ended, and returns that.
func (b *beats) note(id raft.ServerID, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		delete(b.bad, id)
	case b.bad == nil:
		b.bad = map[raft.ServerID]bool{id: true}
	default:
		b.bad[id] = true
	}
	return err
}

// contact lets raft know that the follower has answered a heartbeat with yes; false when
// it doesn't listen now.
func (p *pipeline) contact(args *raft.AppendEntriesRequest, resp raft.AppendEntriesResponse, began time.Time) bool {
	f := &appendFuture{start: began, args: args, resp: &resp, done: make(chan struct{})}
	close(f.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil || p.backlog != nil || p.term > args.Term {
		return false
	}
	select {
	case p.ready <- f:
		return true
	default:
		return false
	}
}

// pipeline returns the pipeline to a follower over a link, or nil.
func (c *commits) pipeline(id raft.ServerID, l *link) *pipeline {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pipelines {
		if p.id == id && p.l == l {
			return p
		}
	}
	return nil
}

// nextBeat returns what is closed at the next multiple of every since 1970: where clocks
// agree the nodes' heartbeats meet, and what they wake is awake already. Nothing ticks
// while nobody waits.
func (n *Network) nextBeat(every time.Duration) <-chan struct{} {
	n.beatMu.Lock()
	defer n.beatMu.Unlock()
	if n.beat == nil {
		beat := make(chan struct{})
		n.beat = beat
		time.AfterFunc(every-time.Duration(time.Now().UnixNano())%every, func() {
			n.beatMu.Lock()
			n.beat = nil
			n.beatMu.Unlock()
			close(beat)
		})
	}
	return n.beat
}
