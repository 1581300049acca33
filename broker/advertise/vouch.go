package advertise

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heraldmq/herald/topics"
)

// vouched is what the clients of this node hold for as long as they are connected.
type vouched struct {
	of map[leaseKey]map[uint64]struct{}
}

func (v *vouched) put(k leaseKey, client uint64) {
	if v.of == nil {
		v.of = map[leaseKey]map[uint64]struct{}{}
	}
	if v.of[k] == nil {
		v.of[k] = map[uint64]struct{}{}
	}
	v.of[k][client] = struct{}{}
}

func (v *vouched) remove(k leaseKey, client uint64) {
	delete(v.of[k], client)
	if len(v.of[k]) == 0 {
		delete(v.of, k)
	}
}

// drop forgets a client and tells whether it held anything.
func (v *vouched) drop(client uint64) (held bool) {
	for k, clients := range v.of {
		if _, ok := clients[client]; ok {
			held = true
			v.remove(k, client)
		}
	}
	return held
}

func (v *vouched) list() (out []held) {
	for k, clients := range v.of {
		for c := range clients {
			out = append(out, held{Account: k.account, Owner: k.Owner, Name: k.Name, Client: c})
		}
	}
	return out
}

// holding enters what a client of this node holds now.
func (s *Service) holding(h *held) {
	if h == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.accounts[h.Account]; v != nil {
		v.rules.holding(h)
	}
	if s.o.Peers == nil {
		return // its lease is kept here
	}
	if h.Not {
		s.vouched.remove(h.key(), h.Client)
		return
	}
	s.vouched.put(h.key(), h.Client)
	select {
	case s.vouches <- struct{}{}:
	default:
	}
}

// begin notes that a request of a client is under way, end that it isn't any more: a
// client that has gone meanwhile holds nothing by it.
func (s *Service) begin(client uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[client]++
}

func (s *Service) end(client uint64) {
	s.mu.Lock()
	if s.busy[client]--; s.busy[client] > 0 {
		s.mu.Unlock()
		return
	}
	delete(s.busy, client)
	gone := s.gone[client]
	delete(s.gone, client)
	s.mu.Unlock()
	if gone {
		s.disconnected(client)
	}
}

// vouch tells whoever leads the catalogue, now and then, which clients of this node
// are still connected. It sleeps while there is none.
func (s *Service) vouch() {
	look := time.NewTimer(vouchLook)
	look.Stop()
	defer look.Stop()
	var told string // who was told last
	var at time.Time
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-look.C:
		case <-s.vouches:
		}
		s.mu.Lock()
		some := len(s.vouched.of) > 0
		s.mu.Unlock()
		if some {
			look.Reset(min(vouchLook, s.o.vouchEvery))
		}
		leader := s.o.Peers.Leader(topics.CatalogueGroup)
		if !some || leader == "" || leader == s.o.Peers.Name() || leader == told && time.Since(at) < s.o.vouchEvery {
			continue
		}
		told, at = "", time.Now()
		if s.tellVouched(leader) {
			told = leader
		}
	}
}

func (s *Service) tellVouched(leader string) bool {
	s.mu.Lock()
	list := s.vouched.list()
	s.mu.Unlock()
	for len(list) > 0 {
		n := min(len(list), vouchMost)
		body, err := json.Marshal(list[:n])
		if err != nil {
			return false
		}
		list = list[n:]
		ctx, cancel := context.WithTimeout(s.ctx, requestPatience)
		_, err = s.o.Peers.Call(ctx, leader, callVouch, body)
		cancel()
		if err != nil {
			return false
		}
	}
	return true
}

// tellEnded tells the leader that a client is gone. When that fails the leader finds
// out because nobody vouches for it any more.
func (s *Service) tellEnded(client uint64) {
	leader := s.o.Peers.Leader(topics.CatalogueGroup)
	if leader == "" || leader == s.o.Peers.Name() {
		return
	}
	body, err := json.Marshal(client)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.done.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, requestPatience)
		defer cancel()
		_, _ = s.o.Peers.Call(ctx, leader, callEnded, body)
	})
}
