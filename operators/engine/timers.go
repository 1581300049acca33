package engine

import (
	"bytes"

	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/operators/stream"
)

// Timers fire one moment after the other, and in a moment one node after the other in
// the order of the graph. While those of a moment fire, event time is just in front of
// it for every node: what the windows of one step that end then give is in time for the
// windows of the next that end then, however far the watermark went on at once. So the
// results don't depend on how far that was.

// fire fires a kind's timers up to and with a time, those that are set meanwhile
// included.
func (x *executor) fire(kind stream.TimerKind, until stream.Time) error {
	x.firing = true
	defer func() { x.firing = false }()
	for x.now.timers[kind] <= until {
		from := appendTimerTime(nil, kind, x.now.timers[kind])
		first, _, ok, err := state.First(x.overlay, from, []byte{spaceTimer, byte(kind) + 1})
		if err != nil {
			return err
		}
		if !ok {
			x.now.timers[kind] = stream.TimeMax
			return nil
		}
		at := timerTime(first)
		x.now.timers[kind] = at
		if at > until || at == stream.TimeMax {
			return nil
		}
		if kind == stream.EventTime {
			x.event = max(x.event, at-1)
		}
		if err := x.moment(kind, at); err != nil {
			return err
		}
	}
	return nil
}

// moment fires the timers of one moment, until there are none or one has been set for
// that moment or an earlier one, which may come before the rest.
func (x *executor) moment(kind stream.TimerKind, at stream.Time) error {
	from := appendTimerTime(nil, kind, at)
	due := make([][][]byte, len(x.i.graph.Nodes))
	err := x.overlay.Scan(from, appendTimerTime(nil, kind, at+1), func(key, _ []byte) bool {
		id, _, _, ok := parseTimerKey(key)
		if n, known := x.byID[id]; ok && known {
			due[n] = append(due[n], bytes.Clone(key))
		} else {
			x.overlay.Delete(key) // of a step that an update has taken out
		}
		return true
	})
	if err != nil {
		return err
	}
	clear(x.alike)
	x.now.timers[kind] = at + 1 // whoever sets an earlier one says so
	for n, keys := range due {
		node := &x.i.graph.Nodes[n]
		for _, k := range keys {
			if _, still, err := x.overlay.Get(k); err != nil || !still {
				continue // another took it back; a failure is seen at the end
			}
			_, key, t, _ := parseTimerKey(k)
			t.At = early(t, node.Lag)
			x.overlay.Delete(k)
			x.fired = true
			if err := x.call(n, key, invocation{timer: &t}); err != nil {
				return err
			}
		}
		if x.now.timers[kind] <= at {
			return nil
		}
	}
	return nil
}
