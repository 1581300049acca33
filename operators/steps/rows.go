package steps

import (
	"fmt"
	"time"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// Rows aggregates the rows of a changelog, which Row tells apart within the key: a new
// one replaces the old, whose part is taken back. It gives a changelog by key, with an
// update for each change, and a delete when no row is left.
type Rows struct {
	Aggregation
	Row *Key
	TTL time.Duration
}

// Removable tells whether an aggregate can take a value back that was added.
func Removable(name string) bool { return name == "count" || name == "sum" || name == "avg" }

// remover is an accumulator that can take a value back.
type remover interface{ remove(v args) }

func (a *count) remove(v args) {
	if !v.arg.IsNull() {
		a.n--
	}
}

// remove takes back what add took: exact numbers only, see wholeOnly.
func (a *sum) remove(got args) {
	v := got.arg
	if v.IsNull() {
		return
	}
	a.n--
	d, _ := v.Decimal()
	if v.Kind() == value.Decimal {
		_, _ = exact.Sub(&a.exact, &a.exact, d) // as exact as the sum was
		return
	}
	if d.Negative {
		a.ints.Add(&a.ints, &d.Coeff)
	} else {
		a.ints.Sub(&a.ints, &d.Coeff)
	}
}

// wholeOnly refuses doubles in sums: what rounding lost would stay when they go.
func (n *Rows) wholeOnly(got []args) error {
	for i := range got {
		if n.Aggregates[i].Func != "count" && got[i].arg.Kind() == value.Double {
			return fmt.Errorf("%s: a double can't be taken back exactly from the %s of rows; use decimal(x)", n.Aggregates[i].Name, n.Aggregates[i].Func)
		}
	}
	return nil
}

// State: "a" → shown(1), number of rows, row of accumulators; "r" row → what it brought.

// Process implements stream.Node.
func (n *Rows) Process(c stream.Context, _ int, r *stream.Record) error {
	which, err := n.Row.key(c, r)
	if err != nil {
		return err
	}
	b, there := c.State().Get(stateRow, nil)
	shown, count := there && b[0] == 1, uint64(0)
	if there {
		if count, b, err = loadUvarint(b[1:]); err != nil {
			return err
		}
	}
	sum, err := n.all().loadOrNew(b, there)
	if err != nil {
		return err
	}
	if old, had := c.State().Get(stateRows, which); had {
		was, err := loadArgs(old, len(sum))
		if err != nil {
			return err
		}
		for i := range sum {
			if a, ok := sum[i].(remover); ok {
				a.remove(was[i])
			}
		}
		count--
	} else if r.Op == stream.Delete {
		return nil
	}
	if r.Op == stream.Delete {
		c.State().Delete(stateRows, which)
	} else {
		if err := n.put(c, r, which, sum); err != nil {
			return err
		}
		count++
	}
	touch(c, n.TTL)
	return n.tell(c, r, sum, count, shown)
}

// put adds what a row brings.
func (n *Rows) put(c stream.Context, r *stream.Record, which []byte, sum row) error {
	got, err := n.all().evalAll(c, r)
	if err != nil {
		return err
	}
	if err := n.wholeOnly(got); err != nil {
		return err
	}
	c.State().Put(stateRows, which, appendArgs(nil, got))
	return n.all().add(sum, got, r.Time, r.Origin)
}

// tell emits the result as it is now, and keeps the accumulators.
func (n *Rows) tell(c stream.Context, r *stream.Record, sum row, count uint64, shown bool) error {
	if count == 0 {
		c.State().Delete(stateRow, nil)
		if !shown {
			return nil
		}
		out, _, err := n.record(c, sum, r.Time, r.Origin, nil, nil)
		if err != nil {
			return err
		}
		out.Op = stream.Delete
		c.Emit(0, out)
		return nil
	}
	shown, err := n.change(c, sum, r.Time, r.Origin, nil, nil, shown)
	if err != nil {
		return err
	}
	flag := []byte{0}
	if shown {
		flag[0] = 1
	}
	c.State().Put(stateRow, nil, sum.append(appendUvarint(flag, count)))
	return nil
}

// OnTimer implements stream.Node.
func (n *Rows) OnTimer(c stream.Context, t stream.Timer) error {
	return expire(c, t, n.TTL, stateRow, stateRows)
}
