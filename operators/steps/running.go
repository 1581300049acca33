package steps

import (
	"time"

	"github.com/heraldmq/herald/operators/stream"
)

// Running aggregates all records of a key, as they come: a changelog by key, with an
// update for each record. With TTL a key that had no record for as long, by the logged
// clock, is forgotten; its row stays as it was last told.
type Running struct {
	Aggregation
	TTL time.Duration
}

const (
	stateRow   = "a"
	stateTouch = "x" // clock of the last record, with TTL
	timerTTL   = "ttl"
)

// kept is a key's accumulators as they are kept between records.
type kept struct {
	row   row
	shown bool
	count uint64 // of rows, where they have any
	size  int    // in state
}

func (k *kept) flag() byte {
	if k.shown {
		return 1
	}
	return 0
}

// load returns what state says of the key.
func (n *Running) load(c stream.Context) (*kept, error) {
	if k, ok := c.Cached(stateRow, nil).(*kept); ok {
		return k, nil
	}
	k := &kept{}
	b, there := c.State().Get(stateRow, nil)
	if there {
		k.shown, k.size, b = b[0] == 1, len(b), b[1:]
	}
	var err error
	k.row, err = n.all().loadOrNew(b, there)
	return k, err
}

// Process implements stream.Node.
func (n *Running) Process(c stream.Context, _ int, r *stream.Record) error {
	k, err := n.load(c)
	if err != nil {
		return err
	}
	if err := n.all().take(k.row, c, r); err != nil {
		return err
	}
	if k.shown, err = n.change(c, k.row, r.Time, r.Origin, nil, nil, k.shown); err != nil {
		return err
	}
	b := k.row.append(append(make([]byte, 0, k.size+8), k.flag()))
	k.size = len(b)
	c.State().Put(stateRow, nil, b)
	c.Cache(stateRow, nil, k, n.all().weight(k.size))
	touch(c, n.TTL)
	return nil
}

// OnTimer implements stream.Node.
func (n *Running) OnTimer(c stream.Context, t stream.Timer) error {
	return expire(c, t, n.TTL, stateRow)
}

// touch notes that a key is in use, and that it is to be asked for after ttl.
func touch(c stream.Context, ttl time.Duration) {
	if ttl <= 0 {
		return
	}
	_, there := c.State().Get(stateTouch, nil)
	c.State().Put(stateTouch, nil, appendTime(nil, c.Clock()))
	if !there {
		c.SetTimer(stream.Timer{Kind: stream.Processing, At: add(c.Clock(), int64(ttl)), Name: timerTTL})
	}
}

// expire forgets a key that wasn't used for ttl, or asks again later.
func expire(c stream.Context, t stream.Timer, ttl time.Duration, names ...string) error {
	b, there := c.State().Get(stateTouch, nil)
	if !there {
		return nil
	}
	last, _, err := loadTime(b)
	if err != nil {
		return err
	}
	if due := add(last, int64(ttl)); due > t.At {
		c.SetTimer(stream.Timer{Kind: stream.Processing, At: due, Name: timerTTL})
		return nil
	}
	for _, name := range append(names, stateTouch) {
		remove(c.State(), name, nil, nil)
		c.Cache(name, nil, nil, 0)
	}
	c.Count("expired", 1)
	return nil
}

// Counted aggregates the last Size records of a key, as they come, each time Every more
// have come; the first windows have fewer. A window goes from the least to the greatest
// event time in it.
type Counted struct {
	Aggregation
	Size, Every int
	TTL         time.Duration
}

// State: "n" → how many there were; "w" number of a pane → least time, greatest time, row.
const stateCount = "n"

// Process implements stream.Node.
func (n *Counted) Process(c stream.Context, _ int, r *stream.Record) error {
	count := uint64(0)
	if b, there := c.State().Get(stateCount, nil); there {
		var err error
		if count, _, err = loadUvarint(b); err != nil {
			return err
		}
	}
	width := uint64((&Windows{Size: time.Duration(n.Size), Every: time.Duration(n.Every)}).pane())
	pane := count / width
	sub := appendTime(nil, stream.Time(pane))
	least, greatest := r.Time, r.Time
	b, there := c.State().Get(stateWindows, sub)
	if there {
		var err error
		if least, greatest, b, err = loadSpan(b); err != nil {
			return err
		}
		least, greatest = min(least, r.Time), max(greatest, r.Time)
	}
	row, err := n.all().loadOrNew(b, there)
	if err != nil {
		return err
	}
	if err := n.all().take(row, c, r); err != nil {
		return err
	}
	c.State().Put(stateWindows, sub, row.append(appendTime(appendTime(nil, least), greatest)))
	count++
	c.State().Put(stateCount, nil, appendUvarint(nil, count))
	touch(c, n.TTL)
	if count%uint64(n.Every) != 0 {
		return nil
	}
	return n.window(c, r, pane, uint64(n.Size)/width, uint64(n.Every)/width)
}

// window emits what the last panes hold, and removes those that no later window has.
func (n *Counted) window(c stream.Context, r *stream.Record, pane, panes, step uint64) error {
	first := uint64(0)
	if pane+1 > panes {
		first = pane + 1 - panes
	}
	var sum row
	var start, end stream.Time
	var err error
	c.State().Scan(stateWindows, appendTime(nil, stream.Time(first)), nil, func(_, v []byte) bool {
		var least, greatest stream.Time
		var part row
		if least, greatest, v, err = loadSpan(v); err != nil {
			return false
		}
		if part, err = n.all().load(v); err != nil {
			return false
		}
		if sum == nil {
			sum, start, end = part, least, greatest
			return true
		}
		start, end = min(start, least), max(end, greatest)
		err = n.all().merge(sum, part)
		return err == nil
	})
	if err != nil {
		return err
	}
	out, pass, err := n.record(c, sum, end, r.Origin, &start, &end)
	if err != nil {
		return err
	}
	if pass {
		c.Emit(0, out)
	}
	if next := pane + 1 + step; next > panes {
		remove(c.State(), stateWindows, nil, appendTime(nil, stream.Time(next-panes)))
	}
	return nil
}

func loadSpan(b []byte) (least, greatest stream.Time, rest []byte, err error) {
	if least, b, err = loadTime(b); err != nil {
		return 0, 0, nil, err
	}
	greatest, b, err = loadTime(b)
	return least, greatest, b, err
}

// OnTimer implements stream.Node.
func (n *Counted) OnTimer(c stream.Context, t stream.Timer) error {
	return expire(c, t, n.TTL, stateWindows, stateCount)
}
