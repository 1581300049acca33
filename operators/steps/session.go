package steps

import (
	"bytes"
	"time"

	"github.com/heraldmq/herald/operators/stream"
)

// Sessions aggregates in windows that end once a key has been quiet for Gap: from the
// first record to the last and Gap. A record that stands between two makes them one.
//
// Without Max a session is kept as its aggregates, which are merged with those of
// another. With Max a session is at most that long, from its first record: which that
// is shows only once event time has passed it, so what the records bring is kept until
// the session ends.
type Sessions struct {
	Aggregation
	Gap, Max   time.Duration
	Allow      time.Duration // how long after its end a session waits for late records
	Processing bool
	Changes    bool // emit at each change; not with Max
}

// State: "s" start → end, shown(1), row; with Max "b" time, order → args.
const (
	stateSessions = "s"
	stateBuffer   = "b"
)

func (n *Sessions) clock() clock { return (&Windows{Processing: n.Processing}).clock() }

// session is one that is open.
type session struct {
	start, end stream.Time
	shown      bool
	row        row
}

func (n *Sessions) load(sub, v []byte) (session, error) {
	var s session
	var err error
	if s.start, _, err = loadTime(sub); err != nil {
		return s, err
	}
	if s.end, v, err = loadTime(v); err != nil || len(v) == 0 {
		return s, errAccumulator
	}
	s.shown = v[0] == 1
	s.row, err = n.all().load(v[1:])
	return s, err
}

func (n *Sessions) save(c stream.Context, s *session) {
	v := append(appendTime(nil, s.end), 0)
	if s.shown {
		v[8] = 1
	}
	c.State().Put(stateSessions, appendTime(nil, s.start), s.row.append(v))
}

// open returns the key's open sessions, in order.
func (n *Sessions) open(c stream.Context) (all []session, err error) {
	c.State().Scan(stateSessions, nil, nil, func(sub, v []byte) bool {
		var s session
		if s, err = n.load(sub, v); err == nil {
			all = append(all, s)
		}
		return err == nil
	})
	return all, err
}

// Process implements stream.Node.
func (n *Sessions) Process(c stream.Context, _ int, r *stream.Record) error {
	k := n.clock()
	t := k.at(c, r)
	if n.Max > 0 {
		return n.buffer(c, r, t)
	}
	open, err := n.open(c)
	if err != nil {
		return err
	}
	into := session{start: t, end: add(t, int64(n.Gap)), row: n.all().newRow()}
	if err := n.all().take(into.row, c, r); err != nil {
		return err
	}
	var merged []session
	for _, s := range open {
		if s.start < into.end && into.start < s.end {
			merged = append(merged, s)
		}
	}
	if len(merged) == 0 && k.passed(c, add(into.end, int64(n.Allow))) {
		c.Side(stream.SideLate, r, "its session is closed")
		return nil
	}
	for i := range merged {
		s := &merged[i]
		if s.shown && (i > 0 || into.start < s.start) {
			// It isn't a session of its own any more, or begins elsewhere.
			if err := n.gone(c, s, r.Origin); err != nil {
				return err
			}
			s.shown = false
		}
		if err := n.all().merge(s.row, into.row); err != nil {
			return err
		}
		c.State().Delete(stateSessions, appendTime(nil, s.start))
		into = session{start: min(s.start, into.start), end: max(s.end, into.end), row: s.row, shown: into.shown || s.shown}
	}
	if n.Changes {
		if into.shown, err = n.change(c, into.row, add(into.end, -1), r.Origin, &into.start, &into.end, into.shown); err != nil {
			return err
		}
	}
	n.save(c, &into)
	if len(merged) == 0 {
		// A timer that is set already finds that the session goes on, and waits on.
		c.SetTimer(k.timer(add(into.end, int64(n.Allow)), ""))
	}
	return nil
}

// gone takes the result back that was shown of a session.
func (n *Sessions) gone(c stream.Context, s *session, from stream.Position) error {
	out, _, err := n.record(c, s.row, add(s.end, -1), from, &s.start, &s.end)
	if err != nil {
		return err
	}
	out.Op = stream.Delete
	c.Emit(0, out)
	return nil
}

// OnTimer implements stream.Node.
func (n *Sessions) OnTimer(c stream.Context, t stream.Timer) error {
	if n.Max > 0 {
		return n.cut(c, t)
	}
	open, err := n.open(c)
	if err != nil {
		return err
	}
	for i := range open {
		s := &open[i]
		if due := add(s.end, int64(n.Allow)); due > t.At {
			c.SetTimer(n.clock().timer(due, ""))
			continue
		}
		if err := n.close(c, s.row, s.start, s.end); err != nil {
			return err
		}
		c.State().Delete(stateSessions, appendTime(nil, s.start))
	}
	return nil
}

func (n *Sessions) close(c stream.Context, r row, start, end stream.Time) error {
	if n.Changes {
		return nil
	}
	out, pass, err := n.record(c, r, add(end, -1), stream.Position{}, &start, &end)
	if err == nil && pass {
		c.Emit(0, out)
	}
	return err
}

// buffer keeps what a record brings until its session is known.
func (n *Sessions) buffer(c stream.Context, r *stream.Record, t stream.Time) error {
	k := n.clock()
	if k.passed(c, add(t, int64(n.Allow)+1)) && n.late(c, t) {
		c.Side(stream.SideLate, r, "its session is closed")
		return nil
	}
	got, err := n.all().evalAll(c, r)
	if err != nil {
		return err
	}
	first := true
	c.State().Scan(stateBuffer, nil, appendTime(nil, add(t, 1)), func([]byte, []byte) bool {
		first = false
		return false
	})
	order := appendOrder(make([]byte, 0, orderSize+4), t, r.Origin)
	keep(c.State(), stateBuffer, order, appendArgs(appendTime(nil, r.Time), got))
	if first { // else the timer of the one in front of it is set, and waits on
		c.SetTimer(k.timer(add(t, int64(min(n.Gap, n.Max))+int64(n.Allow)), ""))
	}
	return nil
}

// late tells whether a session with the time in it may have been closed: one that ends
// at or in front of what has passed, unless a record that is kept holds it open.
func (n *Sessions) late(c stream.Context, t stream.Time) bool {
	late := true
	from := appendTime(nil, add(t, -int64(n.Gap)+1))
	c.State().Scan(stateBuffer, from, appendTime(nil, add(t, int64(n.Gap))), func([]byte, []byte) bool {
		late = false
		return false
	})
	return late && n.clock().passed(c, add(t, int64(min(n.Gap, n.Max))+int64(n.Allow)))
}

// cut closes the sessions that are over: from the first record that is kept, up to the
// first pause or Max.
func (n *Sessions) cut(c stream.Context, t stream.Timer) error {
	type kept struct {
		time stream.Time
		sub  []byte
		v    []byte
	}
	var all []kept
	c.State().Scan(stateBuffer, nil, nil, func(sub, v []byte) bool {
		at, _ := loadOrder(sub)
		all = append(all, kept{at, bytes.Clone(sub), v})
		return true
	})
	for len(all) > 0 {
		start, count := all[0].time, 1
		end := add(start, int64(n.Gap))
		for count < len(all) && all[count].time < end && all[count].time < add(start, int64(n.Max)) {
			end = add(all[count].time, int64(n.Gap))
			count++
		}
		end = min(end, add(start, int64(n.Max)))
		if due := add(end, int64(n.Allow)); due > t.At {
			c.SetTimer(n.clock().timer(due, ""))
			return nil
		}
		sum := n.all().newRow()
		for _, k := range all[:count] {
			_, at := loadOrder(k.sub)
			when, rest, err := loadTime(k.v)
			if err != nil {
				return err
			}
			got, err := loadArgs(rest, len(n.Aggregates))
			if err != nil {
				return err
			}
			if err := n.all().add(sum, got, when, at); err != nil {
				return err
			}
			c.State().Delete(stateBuffer, k.sub)
		}
		if err := n.close(c, sum, start, end); err != nil {
			return err
		}
		all = all[count:]
	}
	return nil
}
