package steps

import (
	"bytes"
	"time"

	"github.com/heraldmq/herald/operators/stream"
)

// Slide aggregates, for each time at which there is a record, the records of the last
// Size up to it, both ends of that time: (t − Size, t]. A result costs as much as there
// are records in its window.
type Slide struct {
	Aggregation
	Size       time.Duration
	Allow      time.Duration
	Processing bool
}

func (n *Slide) clock() clock { return (&Windows{Processing: n.Processing}).clock() }

// The names of a Slide's timers: a result is due, records are out of reach.
const (
	timerResult = ""
	timerOver   = "o"
)

// Process implements stream.Node.
func (n *Slide) Process(c stream.Context, _ int, r *stream.Record) error {
	k := n.clock()
	t := k.at(c, r)
	due := add(t, int64(n.Allow)+1)
	if k.passed(c, due) {
		c.Side(stream.SideLate, r, "the result of its time is out")
		return nil
	}
	got, err := n.all().evalAll(c, r)
	if err != nil {
		return err
	}
	order := appendOrder(make([]byte, 0, orderSize+4), t, r.Origin)
	keep(c.State(), stateBuffer, order, appendArgs(appendTime(nil, r.Time), got))
	c.SetTimer(k.timer(due, timerResult))
	c.SetTimer(k.timer(add(due, int64(n.Size)), timerOver))
	return nil
}

// OnTimer implements stream.Node.
func (n *Slide) OnTimer(c stream.Context, t stream.Timer) error {
	at := add(t.At, -int64(n.Allow)-1)
	if t.Name == timerOver {
		remove(c.State(), stateBuffer, nil, appendTime(nil, add(at, -int64(n.Size)+1)))
		return nil
	}
	start := add(at, -int64(n.Size))
	sum := n.all().newRow()
	var last stream.Position
	var err error
	c.State().Scan(stateBuffer, appendTime(nil, start+1), appendTime(nil, at+1), func(sub, v []byte) bool {
		var when stream.Time
		var got []args
		_, last = loadOrder(sub)
		if when, v, err = loadTime(v); err != nil {
			return false
		}
		if got, err = loadArgs(v, len(n.Aggregates)); err != nil {
			return false
		}
		err = n.all().add(sum, got, when, last)
		return err == nil
	})
	if err != nil {
		return err
	}
	out, pass, err := n.record(c, sum, at, last, &start, &at)
	if err == nil && pass {
		c.Emit(0, out)
	}
	return err
}

// Deduplicate passes the first of the records that have the same By and are less than
// Within apart: of those in the order of event time, which is known once event time has
// passed them, or, by the logged clock, as they come.
type Deduplicate struct {
	By         *Key
	Within     time.Duration
	Processing bool
}

// Process implements stream.Node.
func (n *Deduplicate) Process(c stream.Context, _ int, r *stream.Record) error {
	id, err := n.By.key(c, r)
	if err != nil {
		return err
	}
	name := string(id)
	if n.Processing {
		if _, seen := c.State().Get("seen", id); seen {
			c.Count("duplicates", 1)
			return nil
		}
		c.State().Put("seen", id, nil)
		c.SetTimer(stream.Timer{Kind: stream.Processing, At: add(c.Clock(), int64(n.Within)), Name: name})
		c.Emit(0, r)
		return nil
	}
	if r.Time < c.Watermark() {
		c.Side(stream.SideLate, r, "those of its time are out")
		return nil
	}
	order := append(make([]byte, 0, len(id)+orderSize+4), id...)
	order = appendOrder(order, r.Time, r.Origin)
	keep(c.State(), stateBuffer, order, appendRecord(nil, r))
	c.SetTimer(stream.Timer{Kind: stream.EventTime, At: add(r.Time, 1), Name: name})
	return nil
}

// OnTimer implements stream.Node.
func (n *Deduplicate) OnTimer(c stream.Context, t stream.Timer) error {
	id := []byte(t.Name)
	if n.Processing {
		c.State().Delete("seen", id)
		return nil
	}
	type kept struct{ sub, v []byte }
	var due []kept
	c.State().Scan(stateBuffer, id, appendTime(bytes.Clone(id), t.At), func(sub, v []byte) bool {
		due = append(due, kept{bytes.Clone(sub), v})
		return true
	})
	var passed stream.Time
	last, seen := c.State().Get("seen", id)
	if seen {
		var err error
		if passed, _, err = loadTime(last); err != nil {
			return err
		}
	}
	before := passed
	had := seen
	for _, k := range due {
		r, err := loadRecord(k.v)
		if err != nil {
			return err
		}
		c.State().Delete(stateBuffer, k.sub)
		if seen && r.Time < add(passed, int64(n.Within)) {
			c.Count("duplicates", 1)
			continue
		}
		passed, seen = r.Time, true
		c.Emit(0, r)
	}
	switch {
	case seen && (!had || passed != before):
		c.State().Put("seen", id, appendTime(nil, passed))
		c.SetTimer(stream.Timer{Kind: stream.EventTime, At: add(passed, int64(n.Within)+1), Name: t.Name})
	case had && len(due) == 0 && t.At > add(passed, int64(n.Within)):
		c.State().Delete("seen", id)
	}
	return nil
}
