package front

import "time"

// A receiver on another node may be far behind. That node then has the publisher
// held back on its own one: Hold, again every holdRenew, and Release once there is
// room.

// holdExpires is how long a Hold is good for.
const holdExpires = 3 * time.Second

// holding is why a session waits before it reads more.
type holding struct {
	until time.Time
	over  chan struct{} // closed by Release
}

// Hold makes a client of this node publish slowly until Release, or for three
// seconds. When several nodes hold it, the first to release does.
func (s *Server) Hold(cid uint64) {
	c := s.session(cid)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := &holding{until: time.Now().Add(holdExpires), over: make(chan struct{})}
	if old := c.held.Load(); old != nil {
		fresh.over = old.over
	}
	c.held.Store(fresh)
}

// Release ends Hold.
func (s *Server) Release(cid uint64) {
	c := s.session(cid)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.held.Swap(nil); h != nil {
		close(h.over)
	}
}

// heldBack waits as another node asked for, a second at most for each batch.
func (st *stager) heldBack() {
	h := st.self.held.Load()
	if h == nil || st.srv.opts().NoFastProducerStall {
		return
	}
	left := time.Until(h.until)
	if left <= 0 {
		st.self.mu.Lock()
		st.self.held.CompareAndSwap(h, nil)
		st.self.mu.Unlock()
		return
	}
	st.countStall()
	timer := time.NewTimer(min(left, stallTotalMax))
	defer timer.Stop()
	select {
	case <-h.over:
	case <-timer.C:
	}
}

// waitFor returns what waits, a little each time it is called, for receivers to
// have room. It reports whether to go on: one is behind, but taking its bytes.
func waitFor(targets []*session) func() bool {
	return func() bool {
		for _, t := range targets {
			if !t.ended.Load() && t.waitRoom() {
				return true
			}
		}
		return false
	}
}

// waitRoom waits for room in the outbox, and tells whether to go on waiting: it has
// none yet, but is taking its bytes.
func (s *session) waitRoom() (again bool) {
	before := s.out.written.Load()
	if s.stuckAt.Load() == before+1 {
		return false
	}
	room := s.out.waitRoom()
	if room == nil {
		return false
	}
	timer := time.NewTimer(stallMax)
	defer timer.Stop()
	select {
	case <-room:
		return false
	case <-timer.C:
	}
	taken := s.out.written.Load() - before
	if taken == 0 {
		s.stuckAt.Store(before + 1)
	}
	return taken >= stallBytesMin
}
