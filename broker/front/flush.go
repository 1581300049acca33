package front

import (
	"slices"
	"time"
)

// flush hands over everything staged: captures first, then deliveries to
// others, then what the session itself is sent. A PONG staged for the session
// is thereby behind all that came before its PING.
func (st *stager) flush() {
	if len(st.sinks) > 0 {
		st.flushSinks()
	}
	if st.fan == nil && len(st.dirty) == 0 && len(st.farDirty) == 0 {
		st.staged = 0
		return
	}
	inline := st.staged <= inlineBytesMax
	st.settle()
	if len(st.farDirty) > 0 {
		st.pushRemotes()
	}
	if st.fan != nil {
		st.pushFan(inline && len(st.fan.targets) <= inlineTargetsMax)
	}
	st.push(inline && len(st.dirty) <= inlineTargetsMax)
	st.staged = 0
	st.srv.countOut(st.account, st.outMsgs, st.outBytes)
	st.outMsgs, st.outBytes = 0, 0
	if len(st.slow) > 0 {
		st.waitForSlow()
	}
	if len(st.farSlow) > 0 {
		st.waitForRemotes()
	}
	if st.self != nil && st.self.held.Load() != nil {
		st.heldBack()
	}
}

func (st *stager) pushDirty() {
	if len(st.dirty) > 0 {
		st.settle()
		st.push(false)
	}
}

// push hands over all stages, the session's own last.
func (st *stager) push(inline bool) {
	var own *stage
	for i, g := range st.dirty {
		st.dirty[i] = nil
		if g.target == st.self && st.self != nil {
			own = g
			continue
		}
		st.pushStage(g, inline)
	}
	st.dirty = st.dirty[:0]
	if own != nil {
		st.pushStage(own, inline)
	}
}

func (st *stager) pushStage(g *stage, inline bool) {
	size, msgs := g.spool.size, g.msgs
	g.msgs, g.dirty = 0, false
	st.outMsgs += int64(msgs)
	if msgs > 0 {
		st.outBytes += int64(size)
	}
	st.pieces = g.spool.take(st.pieces[:0])
	st.handOver(g.target, st.pieces, size, msgs, inline)
	clear(st.pieces)
}

// pushFan hands the fan in use to all its receivers and forgets it.
func (st *stager) pushFan(inline bool) {
	f := st.fan
	st.fan = nil
	size, msgs := f.spool.size, f.msgs
	f.msgs = 0
	st.outMsgs += int64(msgs * len(f.targets))
	st.outBytes += int64(size * len(f.targets))
	st.pieces = f.spool.take(st.pieces[:0])
	for _, p := range st.pieces {
		p.c.refs.Add(int32(len(f.targets) - 1))
	}
	for i, t := range f.targets {
		if excess := f.subs[i].settle(msgs); excess > 0 {
			own := st.cut(slices.Clone(st.pieces), f.subs[i].sid, excess)
			left := own.size
			t.out.push(own.take(nil), left, msgs-excess)
			continue
		}
		st.handOver(t, st.pieces, size, msgs, inline)
	}
	clear(st.pieces)
}

func (st *stager) handOver(t *session, pieces []piece, size, msgs int, inline bool) {
	if inline && len(pieces) == 1 && t.out.tryInline(pieces[0], msgs) {
		return
	}
	t.out.push(pieces, size, msgs)
	if st.stall && t != st.self && t.out.pending.Load() >= t.out.stallAt() {
		st.slow = append(st.slow, t)
	}
}

// waitForSlow holds the publisher back while receivers are far behind, as long
// as they are moving. One that took nothing during a whole wait is not waited
// for again until it does: it is left to be cut off.
func (st *stager) waitForSlow() {
	if st.from != "" {
		st.behind = append(st.behind, st.slow...) // the publisher is held back on its node
	} else if !st.srv.opts().NoFastProducerStall {
		deadline := time.Now().Add(stallTotalMax)
		for _, t := range st.slow {
			for st.waits(t) && t.waitRoom() && time.Now().Before(deadline) {
			}
		}
	}
	clear(st.slow)
	st.slow = st.slow[:0]
}

// waits counts a wait, if there is going to be one.
func (st *stager) waits(t *session) bool {
	if t.stuckAt.Load() == t.out.written.Load()+1 || t.out.pending.Load() < t.out.stallAt() {
		return false
	}
	return st.countStall()
}
