package jetstream

import (
	"context"
	"errors"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/broker/wire"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// Every request is answered by the node that leads what it is about: the stream's
// group, or the catalogue. The node it came to finds out who that is and hands the
// message on; what nobody leads waits a while.

// place says what a route's requests are about.
type place uint8

const (
	ofStream    place = iota // the stream, or a consumer of it: its group's leader answers
	ofCatalogue              // which streams there are: the leader of group 0 answers
)

func hasHop(header []byte) bool { return len(header) > 0 && wire.HeaderHas(header, hopHeader) }

func withHop(header []byte) []byte { return wire.HeaderSet(header, hopHeader, "1") }

// passOn sees to it that a request is answered by the node it concerns; false
// when that is this one.
func (r *request) passOn() bool {
	s := r.api.s
	if !s.clustered() || r.refusal() != nil || r.continues() {
		return false
	}
	g, known, err := r.group()
	switch {
	case err != nil:
		r.park(topics.CatalogueGroup)
		return true
	case !known:
		return false // and told so
	}
	if r.moving() {
		r.park(g)
		return true
	}
	switch leader := s.o.Peers.Leader(g); leader {
	case s.o.Peers.Name():
		if g != topics.CatalogueGroup || s.o.Peers.Ready() {
			return false
		}
		r.park(g)
	case "":
		r.park(g)
	default:
		r.settle()
		if !s.forward(leader, r.msg) {
			r.park(g)
			return true
		}
		r.passed()
	}
	return true
}

// moving tells whether the stream is between two groups, which takes a moment.
func (r *request) moving() bool {
	if r.route.place == ofCatalogue {
		return false
	}
	t, ok := r.api.topic(r.stream)
	return ok && t.Moving()
}

// passed counts a request that another node answers.
func (r *request) passed() {
	r.api.total.Add(1)
	r.api.inflight.Add(^uint64(0))
}

// group returns the group a request is about; known is false where there is no
// such stream, by the word of the whole cluster.
func (r *request) group() (g topics.GroupID, known bool, err error) {
	if r.route.place == ofCatalogue {
		return topics.CatalogueGroup, true, nil
	}
	t, ok := r.api.topic(r.stream)
	if !ok {
		if err := r.api.s.freshCatalogue(); err != nil {
			return 0, false, err
		}
		if t, ok = r.api.topic(r.stream); !ok {
			return 0, false, nil
		}
	}
	return t.Group().ID(), true, nil
}

// freshCatalogue makes this node know what the catalogue's leader knows.
func (s *Service) freshCatalogue() error {
	if !s.clustered() {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, callPatience)
	defer cancel()
	return s.o.Peers.Linearize(ctx, topics.CatalogueGroup)
}

// settle waits until what the client published before its request has gone the
// same way.
func (r *request) settle() {
	t, ok := r.api.topic(r.stream)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.api.s.ctx, callPatience)
	defer cancel()
	t.Group().Settle(ctx)
}

// park lets a request wait for somebody to lead a group.
func (r *request) park(g topics.GroupID) {
	s := r.api.s
	if r.until.IsZero() {
		r.until = time.Now().Add(leaderPatience)
	}
	s.waiting.add(g, parked{
		until: r.until,
		again: func() {
			if !s.queue.add(r.key(), r.serve) {
				r.finish(nil, jsapi.ErrClusterUnavailable)
			}
		},
		over: func() { r.finish(nil, jsapi.ErrClusterUnavailable) },
	})
}

// mayRepeat tells whether a request that failed was not carried out because this
// node lost its lead, so that it can go where the lead went.
func (r *request) mayRepeat(err error) bool {
	return err != nil && r.api.s.clustered() && errors.Is(err, replication.ErrNotLeader) && len(r.after) == 0 &&
		(r.until.IsZero() || time.Now().Before(r.until))
}

// linearize waits until what is read of a stream next is what its group last
// agreed on. On a single node there is nobody to ask.
func (s *Service) linearize(ctx context.Context, t *state.Topic) error {
	if !s.clustered() {
		return nil
	}
	return s.o.Peers.Linearize(ctx, t.Group().ID())
}

// A message is one that belongs to an engine (a pull, an acknowledgement, flow
// control) or a direct get, and goes on without a worker.
type message struct {
	a     *accountAPI
	m     *front.Message
	owned bool      // m's bytes are ours
	until time.Time // zero until it has waited
	// here is what to do where the message belongs; false when this node can't yet.
	here func(*front.Message, *state.Topic) bool
	// lost is what to do when nobody can.
	lost func(*front.Message)
}

// route does with a message about a stream what has to be done: it is served here,
// handed on, or waits.
func (p message) route(stream string) {
	s := p.a.s
	t, ok := p.a.topic(stream)
	switch {
	case !ok && !s.clustered():
		p.lost(p.m)
		return
	case !ok:
		p.look(stream)
		return
	}
	g := t.Group().ID()
	if !s.clustered() {
		if !p.here(p.m, t) {
			p.lost(p.m)
		}
		return
	}
	if t.Moving() {
		p.wait(g, stream)
		return
	}
	switch leader := s.o.Peers.Leader(g); leader {
	case s.o.Peers.Name():
		if p.here(p.m, t) {
			return
		}
	case "":
	default:
		if s.forward(leader, p.m) {
			return
		}
	}
	p.wait(g, stream)
}

// own makes the message's bytes ours.
func (p *message) own() {
	if !p.owned {
		p.m, p.owned = p.m.Clone(), true
	}
	if p.until.IsZero() {
		p.until = time.Now().Add(leaderPatience)
	}
}

// wait lets the message wait for somebody to lead the stream's group.
func (p message) wait(g topics.GroupID, stream string) {
	p.own()
	p.a.s.waiting.add(g, parked{
		until: p.until, again: func() { p.route(stream) }, over: func() { p.lost(p.m) },
	})
}

// look asks the catalogue's leader for a stream this node doesn't know, on a worker.
func (p message) look(stream string) {
	p.own()
	if !p.a.s.queue.add("look\x00"+p.a.name+"\x00"+stream, func() {
		if _, ok := p.a.topic(stream); !ok && p.a.s.freshCatalogue() == nil {
			_, ok = p.a.topic(stream)
			if !ok {
				p.lost(p.m)
				return
			}
		} else if !ok {
			p.lost(p.m)
			return
		}
		p.route(stream)
	}) {
		p.lost(p.m)
	}
}
