package filtering

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics/filter"
)

// Peers is the way to the other nodes. Its methods may be called by any number of
// goroutines.
type Peers interface {
	// Others names the nodes that are connected.
	Others() []string
	// OnUp has f told of each node that is connected from now on; f must not block.
	OnUp(f func(node string))
	Call(ctx context.Context, node, method string, body []byte) ([]byte, error)
	Handle(method string, h func(ctx context.Context, from string, body []byte) ([]byte, error))
}

const (
	callPut   = "filter.put"   // here are registrations
	callEnd   = "filter.end"   // one was cancelled
	callKnown = "filter.known" // tell which you have, if your digest is another
	callGet   = "filter.get"   // tell me these
	callStats = "filter.stats" // what did you count of these

	tellTime    = time.Second // to reach a node when a registration is made
	compareTime = 2 * time.Second
	getMax      = 100 // registrations in one call
)

// named is a registration's place, with how long nobody has listened.
type named struct {
	Account string        `json:"account"`
	ID      string        `json:"id"`
	Idle    time.Duration `json:"idle"`
}

func (s *Service) answerPeers() {
	handle := func(method string, h func(body []byte) (any, error)) {
		s.o.Peers.Handle(method, func(_ context.Context, _ string, body []byte) ([]byte, error) {
			v, err := h(body)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", method, err)
			}
			return json.Marshal(v)
		})
	}
	handle(callPut, func(body []byte) (any, error) {
		var list []Registration
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		s.take(list)
		return nil, nil
	})
	handle(callEnd, func(body []byte) (any, error) {
		var n named
		if err := json.Unmarshal(body, &n); err != nil {
			return nil, err
		}
		s.remove(n.Account, n.ID)
		return nil, nil
	})
	handle(callKnown, func(body []byte) (any, error) {
		var theirs uint64
		if err := json.Unmarshal(body, &theirs); err != nil {
			return nil, err
		}
		all, digest := s.known()
		if digest == theirs {
			return nil, nil
		}
		return all, nil
	})
	handle(callGet, func(body []byte) (any, error) {
		var list []named
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		return s.told(list), nil
	})
	handle(callStats, func(body []byte) (any, error) {
		var list []named
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		return s.counted(list), nil
	})
}

// take adds what another node has. What this node can't take is logged: the other one
// filters for it alone.
func (s *Service) take(list []Registration) {
	for _, r := range list {
		if r.Idle > s.o.Grace {
			continue
		}
		if _, err := s.put(r); err != nil {
			s.o.Log.Warn("A filtered subscription of another node can't be served here", "account", r.Account, "subject", r.Subject, "where", r.Where, "error", err)
		}
	}
}

// known lists the registrations of this node, with a digest of which they are.
func (s *Service) known() (out []named, digest uint64) {
	now := time.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for account, v := range s.accounts {
		for _, l := range v.all {
			out = append(out, named{account, l.ID, time.Duration(now - l.heard.Load())})
			h := fnv.New64a()
			h.Write([]byte(account + "\x00" + l.ID))
			digest ^= h.Sum64() // whatever the order
		}
	}
	return out, digest
}

func (s *Service) told(list []named) (out []Registration) {
	now := time.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range list[:min(len(list), getMax)] {
		if v := s.accounts[n.Account]; v != nil && v.all[n.ID] != nil {
			l := v.all[n.ID]
			r := l.Registration
			r.Idle = time.Duration(now - l.heard.Load())
			out = append(out, r)
		}
	}
	return out
}

func (s *Service) counted(list []named) map[string]filter.Stats {
	out := map[string]filter.Stats{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range list {
		if v := s.accounts[n.Account]; v != nil && v.all[n.ID] != nil {
			out[n.ID] = v.all[n.ID].tally.Stats()
		}
	}
	return out
}

// everywhere calls all other nodes at once and waits for their answers, but not long:
// one that doesn't hear it now finds out when it compares.
func (s *Service) everywhere(ctx context.Context, method string, v any, answered func(b []byte)) {
	if s.o.Peers == nil {
		return
	}
	body, err := json.Marshal(v)
	if err != nil {
		return // plain values: it can't be
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, node := range s.o.Peers.Others() {
		wg.Go(func() {
			b, err := s.o.Peers.Call(ctx, node, method, body)
			if err != nil || answered == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answered(b)
		})
	}
	wg.Wait()
}

// tell has the other nodes filter for a registration too.
func (s *Service) tell(ctx context.Context, r Registration) {
	s.everywhere(ctx, callPut, []Registration{r}, nil)
}

func (s *Service) tellEnd(ctx context.Context, account, id string) {
	s.everywhere(ctx, callEnd, named{Account: account, ID: id}, nil)
}

// sum adds to views what the other nodes have counted.
func (s *Service) sum(ctx context.Context, account string, views []view) {
	var ask []named
	for i := range views {
		ask = append(ask, named{Account: account, ID: views[i].ID})
	}
	if len(ask) == 0 {
		return
	}
	s.everywhere(ctx, callStats, ask, func(b []byte) {
		var got map[string]filter.Stats
		if json.Unmarshal(b, &got) != nil {
			return
		}
		for i := range views {
			views[i].Stats.Add(got[views[i].ID])
		}
	})
}

// compare takes over, at once from a node that comes and now and then, what other nodes
// have and this one doesn't: it was not there when they were told, or has been restarted.
func (s *Service) compare() {
	tick := time.NewTicker(s.o.compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case node := <-s.up:
			s.compareWith(node)
			continue
		case <-tick.C:
		}
		for _, node := range s.o.Peers.Others() {
			s.compareWith(node)
		}
	}
}

func (s *Service) compareWith(node string) {
	ctx, cancel := context.WithTimeout(s.ctx, requestTime)
	defer cancel()
	mine, digest := s.known()
	call := func(method string, v, into any) bool {
		body, err := json.Marshal(v)
		if err != nil {
			return false
		}
		b, err := s.o.Peers.Call(ctx, node, method, body)
		return err == nil && json.Unmarshal(b, into) == nil
	}
	var theirs []named
	if !call(callKnown, digest, &theirs) {
		return
	}
	have := map[[2]string]bool{}
	for _, n := range mine {
		have[[2]string{n.Account, n.ID}] = true
	}
	theirs = slices.DeleteFunc(theirs, func(n named) bool {
		return have[[2]string{n.Account, n.ID}] || n.Idle > s.o.Grace
	})
	for part := range slices.Chunk(theirs, getMax) {
		var list []Registration
		if !call(callGet, part, &list) {
			return
		}
		s.take(list)
	}
}
