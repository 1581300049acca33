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
	k, err := n.load(c)
	if err != nil {
		return err
	}
	sum := k.row
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
		k.count--
	} else if r.Op == stream.Delete {
		return nil
	}
	if r.Op == stream.Delete {
		c.State().Delete(stateRows, which)
	} else {
		if err := n.put(c, r, which, sum); err != nil {
			return err
		}
		k.count++
	}
	touch(c, n.TTL)
	return n.tell(c, r, k)
}

// load returns what state says of the key.
func (n *Rows) load(c stream.Context) (*kept, error) {
	if k, ok := c.Cached(stateRow, nil).(*kept); ok {
		return k, nil
	}
	k := &kept{}
	b, there := c.State().Get(stateRow, nil)
	var err error
	if there {
		k.shown, k.size = b[0] == 1, len(b)
		if k.count, b, err = loadUvarint(b[1:]); err != nil {
			return nil, err
		}
	}
	k.row, err = n.all().loadOrNew(b, there)
	return k, err
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
func (n *Rows) tell(c stream.Context, r *stream.Record, k *kept) error {
	if k.count == 0 {
		c.State().Delete(stateRow, nil)
		c.Cache(stateRow, nil, nil, 0)
		if !k.shown {
			return nil
		}
		out, _, err := n.record(c, k.row, r.Time, r.Origin, nil, nil)
		if err != nil {
			return err
		}
		out.Op = stream.Delete
		c.Emit(0, out)
		return nil
	}
	var err error
	if k.shown, err = n.change(c, k.row, r.Time, r.Origin, nil, nil, k.shown); err != nil {
		return err
	}
	b := k.row.append(appendUvarint(append(make([]byte, 0, k.size+8), k.flag()), k.count))
	k.size = len(b)
	c.State().Put(stateRow, nil, b)
	c.Cache(stateRow, nil, k, n.all().weight(k.size))
	return nil
}

// OnTimer implements stream.Node.
func (n *Rows) OnTimer(c stream.Context, t stream.Timer) error {
	return expire(c, t, n.TTL, stateRow, stateRows)
}
