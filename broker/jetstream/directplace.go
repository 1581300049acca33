package jetstream

import (
	"bytes"
	"context"
	"strconv"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/broker/state"
)

// onDirect answers a direct get: on the publisher's goroutine where nobody else has
// to be asked. The stream's leader answers; while there is none any node with a
// replica does, from what it knows.
func (a *accountAPI) onDirect(m *front.Message, rest []byte) {
	stream, key, keyed := bytes.Cut(rest, []byte("."))
	t, found := a.topic(string(stream))
	s := a.s
	if found && (!t.Config().AllowDirect || a.limits.Load() == nil) || !found && !s.clustered() {
		unheard(m)
		return
	}
	if len(m.Reply) == 0 {
		return
	}
	if !s.clustered() {
		serveDirect(m, t, string(key), keyed, m.Respond)
		return
	}
	if found {
		switch leader := s.o.Peers.Leader(t.Group().ID()); {
		case leader == s.o.Peers.Name() && t.Group().Replicas() <= 1 && t.Data() != nil, leader == "" && t.Data() != nil:
			serveDirect(m, t, string(key), keyed, m.Respond)
			return
		case leader != "" && leader != s.o.Peers.Name() && s.forward(leader, m):
			return
		}
	}
	k := string(key)
	message{a: a, m: m, lost: unheard, here: func(m *front.Message, t *state.Topic) bool {
		return a.directAgreed(m, t, k, keyed)
	}}.route(string(stream))
}

// directLanes is how many direct gets of one stream wait at once for the leader to
// hear that it still leads. Those that wait together ask once.
const directLanes = 32

// directAgreed answers a direct get on a worker, once it is sure that nobody knows
// better.
func (a *accountAPI) directAgreed(m *front.Message, t *state.Topic, key string, keyed bool) bool {
	if !t.Config().AllowDirect || a.limits.Load() == nil {
		unheard(m)
		return true
	}
	if t.Data() == nil {
		return false
	}
	m = m.Clone()
	lane := "direct\x00" + a.name + "\x00" + t.Name() + strconv.FormatUint(a.lane.Add(1)%directLanes, 10)
	if !a.s.queue.add(lane, func() {
		ctx, cancel := context.WithTimeout(a.s.ctx, callPatience)
		defer cancel()
		if a.s.linearize(ctx, t) != nil {
			// When nobody is known to lead, any replica answers.
			leader := a.s.o.Peers.Leader(t.Group().ID())
			if leader != "" && leader != a.s.o.Peers.Name() && a.s.forward(leader, m) {
				return
			}
		}
		p := a.account.NewPublisher()
		serveDirect(m, t, key, keyed, func(header, payload []byte) {
			p.Publish(string(m.Reply), "", header, payload)
		})
		p.Flush()
	}) {
		unheard(m)
	}
	return true
}

// serveDirect answers a direct get from the replica that is here.
func serveDirect(m *front.Message, t *state.Topic, key string, keyed bool, respond func(header, payload []byte)) {
	d := &direct{respond: respond, data: t.Data(), stream: t.Name()}
	if len(m.Header) > 0 && !jsapi.LevelMet(m.Header) {
		d.status(412, "Required Api Level")
		return
	}
	d.serve(key, keyed, m.Payload)
}
