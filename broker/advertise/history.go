package advertise

import (
	"context"

	"github.com/heraldmq/herald/topics/catalogue"
)

// The bounds of what is remembered of past changes, for watches that resume.
const (
	historyMax      = 16384
	historyBytesMax = 16 << 20
)

// history is the advertisements as the changes told so far have made them, and the last
// of these changes. It follows the catalogue, a little behind. Guarded by Service.mu.
//
// Invariant: the changes after revision from, up to revision, are all in ring.
type history struct {
	loaded   bool
	revision uint64
	all      map[string]map[catalogue.Key]*catalogue.Advertisement // by account
	ring     []catalogue.Event
	bytes    int
	from     uint64
	moved    chan struct{} // closed with the next change; nil when nobody waits
}

// load begins with what the catalogue has, unless it has begun already.
func (h *history) load(c Catalogue) {
	if !h.loaded {
		h.reload(c)
	}
}

// reload begins anew; what was remembered of changes is gone.
func (h *history) reload(c Catalogue) {
	all, revision := c.Advertisements("")
	h.loaded, h.revision, h.from = true, revision, revision
	h.all = map[string]map[catalogue.Key]*catalogue.Advertisement{}
	h.ring, h.bytes = nil, 0
	for _, a := range all {
		h.put(a)
	}
	h.tell()
}

func (h *history) tell() {
	if h.moved != nil {
		close(h.moved)
		h.moved = nil
	}
}

func (h *history) put(a *catalogue.Advertisement) {
	mine := h.all[a.Account]
	if mine == nil {
		mine = map[catalogue.Key]*catalogue.Advertisement{}
		h.all[a.Account] = mine
	}
	mine[a.Key()] = a
}

func (h *history) of(account string) map[catalogue.Key]*catalogue.Advertisement {
	return h.all[account]
}

// take takes a change in. fresh is false when it is a part of what was loaded; gap tells
// that changes before it are missing, and nothing was taken in.
func (h *history) take(e *catalogue.Event) (fresh, gap bool) {
	switch {
	case e.Advertisement == nil || e.Revision > h.revision+1:
		return false, true
	case e.Revision <= h.revision:
		return false, false
	}
	a := e.Advertisement
	if ends(e.Kind) {
		delete(h.all[a.Account], a.Key())
	} else {
		h.put(a)
	}
	h.revision = e.Revision
	h.ring = append(h.ring, *e)
	h.bytes += sizeOf(e)
	for len(h.ring) > historyMax || h.bytes > historyBytesMax {
		h.from = h.ring[0].Revision
		h.bytes -= sizeOf(&h.ring[0])
		h.ring[0] = catalogue.Event{}
		h.ring = h.ring[1:]
	}
	h.tell()
	return true, false
}

func sizeOf(e *catalogue.Event) int { return len(e.Advertisement.Body()) + 1024 }

func ends(k catalogue.EventKind) bool { return k == catalogue.Expired || k == catalogue.Withdrawn }

// since returns the changes of an account after a revision and the advertisements as they
// were at it; false when they aren't remembered.
func (h *history) since(account string, revision uint64) (then map[catalogue.Key]*catalogue.Advertisement, changes []*catalogue.Event, ok bool) {
	if revision < h.from || revision > h.revision {
		return nil, nil, false
	}
	for i := range h.ring {
		if e := &h.ring[i]; e.Revision > revision && e.Advertisement.Account == account {
			changes = append(changes, e)
		}
	}
	then = map[catalogue.Key]*catalogue.Advertisement{}
	for k, a := range h.of(account) {
		then[k] = a
	}
	for i := len(changes) - 1; i >= 0; i-- {
		e := changes[i]
		k := e.Advertisement.Key()
		switch {
		case ends(e.Kind):
			then[k] = e.Advertisement
		case e.Before != nil:
			then[k] = e.Before
		default:
			delete(then, k)
		}
	}
	return then, changes, true
}

// reach waits until the changes up to a revision have been taken in, so that what depends
// on them is in force on this node. Whoever gives up waiting first is not told.
func (s *Service) reach(ctx context.Context, revision uint64) {
	for {
		s.mu.Lock()
		h := &s.history
		if !h.loaded || h.revision >= revision || s.closed {
			s.mu.Unlock()
			return
		}
		if h.moved == nil {
			h.moved = make(chan struct{})
		}
		moved := h.moved
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// resync begins anew after a gap: everything that watches may have missed something.
// s.mu is held.
func (s *Service) resync() {
	before := s.history.all
	s.history.reload(s.o.Catalogue)
	for name, v := range s.accounts {
		now := s.history.of(name)
		for k, old := range before[name] {
			if now[k] == nil {
				s.leave(v, old)
			}
		}
		for k, a := range now {
			if old := before[name][k]; old != a {
				s.enter(v, old, a)
			}
		}
		v.rules.set(v.bus)
		v.bus.setObserver(v.seen.View())
	}
	s.endWatches()
}
