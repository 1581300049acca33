package peer

import "testing"

// TestAPeerIsSilentUntilItIsHeard: pings that stay without an answer make it silent, anything
// that it says ends that.
func TestAPeerIsSilentUntilItIsHeard(t *testing.T) {
	a := open(t, "a")
	b := open(t, "b", a.Addr().String())
	a.Start()
	b.Start()
	is := func(silent bool) func() bool {
		return func() bool {
			p, ok := a.Peer("b")
			return ok && p.Silent == silent
		}
	}
	wait(t, "b is connected and not silent", is(false))
	a.mu.Lock()
	l := a.links["b"]
	a.mu.Unlock()
	wait(t, "b is silent when pings were in vain", func() bool {
		l.missed.Store(silentPings)
		return is(true)()
	})
	l.ping(0)
	wait(t, "its answer is heard", is(false))
}
