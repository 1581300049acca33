package advertise

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/heraldmq/herald/topics/catalogue"
)

// watch is somebody who is told of changes on a subject of their own, from what
// was there when they asked. It ends when nobody listens there any more.
type watch struct {
	query  query
	after  uint64 // changes up to this revision are part of what was sent already
	known  map[catalogue.Key]struct{}
	cancel func()
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
func (s *Service) watch(r request, q query) error {
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
	w := &watch{query: q, known: map[catalogue.Key]struct{}{}}
	w.cancel = v.bus.watchInterest(r.reply, func(has bool) {
		if !has {
			s.endWatch(v, r.reply, w)
		}
	})
	// What is there is published with s.mu held, which tell takes before it
	// publishes a change: so the two don't get mixed up.
	defer s.mu.Unlock()
	all, revision := s.o.Catalogue.Advertisements(r.account)
	w.after = revision
	v.watches[r.reply] = w
	v.bus.publish(r.reply, encode(reply{Watching: true, Revision: revision}))
	for _, a := range all {
		if q.matches(a) {
			w.known[a.Key()] = struct{}{}
			v.bus.publish(r.reply, encode(message{Event: "current", Revision: a.Revision, Advertisement: a}))
		}
	}
	v.bus.publish(r.reply, encode(message{Event: "caught-up", Revision: revision}))
	if !v.bus.hasInterest(r.reply) {
		delete(v.watches, r.reply)
		w.cancel()
	}
	return errAnswered
}

func (s *Service) endWatch(v *served, on string, w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.watches[on] == w {
		delete(v.watches, on)
		w.cancel()
	}
}

// tell publishes the changes, in their order.
func (s *Service) tell() {
	for {
		select {
		case e := <-s.events:
			s.publish(&e)
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Service) publish(e *catalogue.Event) {
	if e.Kind == catalogue.Expired || e.Kind == catalogue.Withdrawn {
		defer s.forget(leaseKey{e.Advertisement.Account, e.Advertisement.Key()})
	}
	leads := s.o.Catalogue.IsCatalogueLeader()
	at := time.Unix(0, int64(e.Time)).UTC()
	m := message{Event: string(e.Kind), Revision: e.Revision, Time: &at, Advertisement: e.Advertisement}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost {
		s.lost = false
		s.endWatches()
	}
	v := s.accounts[e.Advertisement.Account]
	if v == nil {
		return
	}
	payload := encode(m)
	if leads { // watches are the node's that they were asked of
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
// to match.
func (w *watch) message(e *catalogue.Event, m message, payload []byte) []byte {
	if e.Revision <= w.after {
		return nil
	}
	k := e.Advertisement.Key()
	_, known := w.known[k]
	kind := e.Kind
	switch gone := kind == catalogue.Expired || kind == catalogue.Withdrawn; {
	case gone && !known:
		return nil
	case gone:
		delete(w.known, k)
	case !w.query.matches(e.Advertisement):
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
	if kind == e.Kind {
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
