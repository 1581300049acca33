package advertise

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/catalogue"
)

// watch is somebody who is told of changes on a subject of their own, from what
// was there when they asked, or from a revision on. It ends when nobody listens there any
// more.
type watch struct {
	query  query
	who    *front.ClientInfo
	after  uint64 // changes up to this revision are part of what was sent already
	known  map[catalogue.Key]struct{}
	cancel func()
}

func (w *watch) wants(a *catalogue.Advertisement) bool {
	return w.query.matches(a) && w.who.MayDiscover(a.Pattern)
}

// message is what is published about one advertisement: in a watch and as an
// event. The first messages of a watch are "current", then comes one "caught-up";
// "lost" ends it, because there were too many changes to keep up with.
type message struct {
	Event         string                   `json:"event"`
	Revision      uint64                   `json:"revision"`
	Time          *time.Time               `json:"time,omitempty"`
	Advertisement *catalogue.Advertisement `json:"advertisement,omitempty"`
}

// errAnswered says that a request has had its answer.
var errAnswered = errors.New("answered")

// watch begins a watch. It answers by itself, since the messages that follow on
// the reply subject must come after the answer.
func (s *Service) watch(ctx context.Context, r request, q query) error {
	_, revision := s.o.Catalogue.Advertisements(r.account)
	s.reach(ctx, revision)
	s.mu.Lock()
	v := s.accounts[r.account]
	if v == nil || s.closed {
		s.mu.Unlock()
		return faultNotLeader
	}
	if len(v.watches) >= watchesMax {
		s.mu.Unlock()
		return faultWatches
	}
	w := &watch{query: q, who: r.who, known: map[catalogue.Key]struct{}{}}
	w.cancel = v.bus.watchInterest(r.reply, func(has bool) {
		if !has {
			s.endWatch(v, r.reply, w)
		}
	})
	// What is there is published with s.mu held, which tell takes before it
	// publishes a change: so the two don't get mixed up.
	defer s.mu.Unlock()
	v.watches[r.reply] = w
	if q.Since == nil || !s.resume(v, w, r.reply) {
		s.current(v, w, r.reply)
	}
	if !v.bus.hasInterest(r.reply) {
		delete(v.watches, r.reply)
		w.cancel()
	}
	return errAnswered
}

// current tells a watch what there is. s.mu is held.
func (s *Service) current(v *served, w *watch, on string) {
	w.after = s.history.revision
	v.bus.publish(on, encode(reply{Watching: true, Revision: w.after}))
	for _, a := range sorted(s.history.of(v.name)) {
		if w.wants(a) {
			w.known[a.Key()] = struct{}{}
			v.bus.publish(on, encode(message{Event: "current", Revision: a.Revision, Advertisement: a}))
		}
	}
	v.bus.publish(on, encode(message{Event: "caught-up", Revision: w.after}))
}

// resume tells a watch what has changed since the revision it asks for; false when that
// isn't known any more. s.mu is held.
func (s *Service) resume(v *served, w *watch, on string) bool {
	then, changes, ok := s.history.since(v.name, *w.query.Since)
	if !ok {
		return false
	}
	w.after = *w.query.Since
	for k, a := range then {
		if w.wants(a) {
			w.known[k] = struct{}{}
		}
	}
	v.bus.publish(on, encode(reply{Watching: true, Resumed: true, Revision: s.history.revision}))
	for _, e := range changes {
		m := changeMessage(e)
		if p := w.message(e, m, nil); p != nil {
			v.bus.publish(on, p)
		}
	}
	w.after = s.history.revision
	v.bus.publish(on, encode(message{Event: "caught-up", Revision: w.after}))
	return true
}

func (s *Service) endWatch(v *served, on string, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.watches[on] == w {
		delete(v.watches, on)
		w.cancel()
	}
}

// tell publishes the changes, in their order, and what else there is to tell.
func (s *Service) tell() {
	for {
		select {
		case e := <-s.events:
			s.publish(&e)
		case n := <-s.notes:
			s.publishNote(n)
		case <-s.ctx.Done():
			return
		}
	}
}

func changeMessage(e *catalogue.Event) message {
	at := time.Unix(0, int64(e.Time)).UTC()
	return message{Event: string(e.Kind), Revision: e.Revision, Time: &at, Advertisement: e.Advertisement}
}

func (s *Service) publish(e *catalogue.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.load(s.o.Catalogue)
	fresh, gap := s.history.take(e)
	if gap || s.lost {
		s.lost = false
		s.resync()
	}
	if e.Advertisement == nil {
		return
	}
	v := s.accounts[e.Advertisement.Account]
	if fresh && v != nil {
		if ends(e.Kind) {
			s.leave(v, e.Advertisement)
		} else {
			s.enter(v, e.Before, e.Advertisement)
		}
		v.rules.set(v.bus)
		v.bus.setObserver(v.seen.View())
	}
	if ends(e.Kind) {
		s.forgetLocked(leaseKey{e.Advertisement.Account, e.Advertisement.Key()})
	}
	if v == nil {
		return
	}
	m := changeMessage(e)
	payload := encode(m)
	if s.o.Catalogue.IsCatalogueLeader() { // watches are the node's that they were asked of
		v.bus.publish("$HERALD.ADV.EVENT."+string(e.Kind)+"."+e.Advertisement.Name, payload)
	}
	for on, w := range v.watches {
		if p := w.message(e, m, payload); p != nil {
			v.bus.publish(on, p)
		}
	}
}

// message returns what a watch is told of a change, nil when nothing. For a watch
// with a query an advertisement appears and disappears as it begins and ceases
// to match. payload is m encoded; nil: it isn't yet.
func (w *watch) message(e *catalogue.Event, m message, payload []byte) []byte {
	if e.Revision <= w.after {
		return nil
	}
	k := e.Advertisement.Key()
	_, known := w.known[k]
	kind := e.Kind
	switch gone := ends(kind); {
	case gone && !known:
		return nil
	case gone:
		delete(w.known, k)
	case !w.wants(e.Advertisement):
		if !known {
			return nil
		}
		delete(w.known, k)
		kind = catalogue.Withdrawn
	default:
		w.known[k] = struct{}{}
		kind = catalogue.Added
		if known {
			kind = catalogue.Changed
		}
	}
	if kind == e.Kind && payload != nil {
		return payload
	}
	m.Event = string(kind)
	return encode(m)
}

// endWatches tells all watches that they have missed something; they have to
// begin anew.
func (s *Service) endWatches() {
	b, err := json.Marshal(message{Event: "lost"})
	if err != nil {
		return // two plain fields always encode
	}
	for _, v := range s.accounts {
		for on, w := range v.watches {
			v.bus.publish(on, b)
			w.cancel()
			delete(v.watches, on)
		}
	}
}
