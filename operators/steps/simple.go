package steps

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// eval evaluates an expression over a record.
func eval(p *expr.Program, c stream.Context, r *stream.Record) (value.Value, error) {
	return stream.Eval(p, r, c.Clock())
}

// match evaluates a condition over a record.
func match(p *expr.Program, c stream.Context, r *stream.Record) (bool, error) {
	return stream.Match(p, r, c.Clock())
}

// gone tells whether a record only says that a row is gone, without what it was.
func gone(r *stream.Record) bool { return r.Op == stream.Delete && r.Value.IsNull() }

// Filter passes the records for which If is true. Of a changelog, a row for which it
// isn't true is gone.
type Filter struct {
	noTimers
	If        *expr.Program
	Changelog bool // what comes in is one
}

// Process implements stream.Node.
func (n *Filter) Process(c stream.Context, _ int, r *stream.Record) error {
	if r.Op == stream.Delete {
		c.Emit(0, r)
		return nil
	}
	pass, err := match(n.If, c, r)
	if err != nil {
		return err
	}
	switch {
	case pass:
		c.Emit(0, r)
	case n.Changelog:
		d := *r
		d.Op = stream.Delete
		c.Emit(0, &d)
	}
	return nil
}

// Assert passes the records for which If is true; another is an error.
type Assert struct {
	noTimers
	If *expr.Program
}

// Process implements stream.Node.
func (n *Assert) Process(c stream.Context, _ int, r *stream.Record) error {
	if r.Op == stream.Delete {
		c.Emit(0, r)
		return nil
	}
	pass, err := match(n.If, c, r)
	switch {
	case err != nil:
		return err
	case !pass:
		return fmt.Errorf("the assertion %s doesn't hold", n.If.Text())
	}
	c.Emit(0, r)
	return nil
}

// Named is an expression whose result gets a name.
type Named struct {
	Name string
	Expr *expr.Program
}

// shape is the names of an object that a step makes again and again; the step makes it of
// what it is configured with, once.
type shape struct {
	names []string
	twice bool // a name is there twice: the last counts
}

func (s *shape) set(names []string) {
	s.names = names
	for i, name := range names {
		s.twice = s.twice || slices.Contains(names[:i], name)
	}
}

// of makes the object of as many values.
func (s *shape) of(values []value.Value) value.Value {
	if !s.twice {
		return value.OfFields(s.names, values)
	}
	list := make([]value.Field, len(values))
	for i, v := range values {
		list[i] = value.Field{Name: s.names[i], Value: v}
	}
	return value.OfObject(list...)
}

// object evaluates fields to an object.
func object(s *shape, fields []Named, c stream.Context, r *stream.Record) (value.Value, error) {
	if s.names == nil {
		names := make([]string, len(fields))
		for i := range fields {
			names[i] = fields[i].Name
		}
		s.set(names)
	}
	values := make([]value.Value, len(fields))
	for i := range fields {
		var err error
		if values[i], err = eval(fields[i].Expr, c, r); err != nil {
			return value.Value{}, fmt.Errorf("%s: %w", fields[i].Name, err)
		}
	}
	return s.of(values), nil
}

// Map replaces the value: by an object of Fields or, where Whole is set, by its result.
type Map struct {
	noTimers
	Fields []Named
	Whole  *expr.Program

	shape shape
}

// Process implements stream.Node.
func (n *Map) Process(c stream.Context, _ int, r *stream.Record) error {
	if gone(r) {
		c.Emit(0, r)
		return nil
	}
	m := *r
	var err error
	if n.Whole != nil {
		m.Value, err = eval(n.Whole, c, r)
	} else {
		m.Value, err = object(&n.shape, n.Fields, c, r)
	}
	if err != nil {
		return err
	}
	c.Emit(0, &m)
	return nil
}

// Project keeps the named fields of an object, in that order, or drops them. What isn't
// there is left out.
type Project struct {
	noTimers
	Fields []string
	Drop   bool
}

// Process implements stream.Node.
func (n *Project) Process(c stream.Context, _ int, r *stream.Record) error {
	if gone(r) {
		c.Emit(0, r)
		return nil
	}
	if r.Value.Kind() != value.Object {
		return fmt.Errorf("project takes fields of an object, not of a %s", r.Value.Kind())
	}
	p := *r
	if n.Drop {
		for _, name := range n.Fields {
			p.Value = p.Value.Without(name)
		}
		c.Emit(0, &p)
		return nil
	}
	list := make([]value.Field, 0, len(n.Fields))
	for _, name := range n.Fields {
		if f, ok := r.Value.Get(name); ok {
			list = append(list, value.Field{Name: name, Value: f})
		}
	}
	p.Value = value.OfObject(list...)
	c.Emit(0, &p)
	return nil
}

// FlatmapMax is how many records one may become.
const FlatmapMax = 100_000

// Flatmap makes a record of each item of the list that List gives; of null, none.
type Flatmap struct {
	noTimers
	List *expr.Program
}

// Process implements stream.Node.
func (n *Flatmap) Process(c stream.Context, _ int, r *stream.Record) error {
	v, err := eval(n.List, c, r)
	if err != nil || v.IsNull() {
		return err
	}
	if v.Kind() != value.List {
		return fmt.Errorf("flatmap takes a list, %s gives a %s", n.List.Text(), v.Kind())
	}
	if v.Len() > FlatmapMax {
		return fmt.Errorf("flatmap makes %d records of one, the most is %d", v.Len(), FlatmapMax)
	}
	for _, item := range v.List() {
		f := *r
		f.Value = item
		c.Emit(0, &f)
	}
	return nil
}

// Key gives records a key: of one expression its result, of several a list of them.
type Key struct {
	noTimers
	By []*expr.Program
}

// Process implements stream.Node.
func (n *Key) Process(c stream.Context, _ int, r *stream.Record) error {
	k, err := n.key(c, r)
	if err != nil {
		return err
	}
	keyed := *r
	keyed.Key = k
	c.Emit(0, &keyed)
	return nil
}

// KeyMax is how many bytes a key may have, as state keeps it.
const KeyMax = 16 << 10

func (n *Key) key(c stream.Context, r *stream.Record) ([]byte, error) {
	var v value.Value
	if len(n.By) == 1 {
		var err error
		if v, err = eval(n.By[0], c, r); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
	} else {
		parts := make([]value.Value, len(n.By))
		for i, by := range n.By {
			var err error
			if parts[i], err = eval(by, c, r); err != nil {
				return nil, fmt.Errorf("key: %w", err)
			}
		}
		v = value.OfList(parts)
	}
	k := value.AppendKey(make([]byte, 0, 24), v)
	if len(k) > KeyMax {
		return nil, fmt.Errorf("a key of %d bytes, the most is %d", len(k), KeyMax)
	}
	return k, nil
}

// Union passes what comes in on any port.
type Union struct{ noTimers }

// Process implements stream.Node.
func (n *Union) Process(c stream.Context, _ int, r *stream.Record) error {
	c.Emit(0, r)
	return nil
}

// Split passes each record to the port of the first condition that is true, and to the
// port behind them where none is.
type Split struct {
	noTimers
	Branches []*expr.Program
}

// Process implements stream.Node.
func (n *Split) Process(c stream.Context, _ int, r *stream.Record) error {
	for i, b := range n.Branches {
		pass, err := match(b, c, r)
		if err != nil {
			return err
		}
		if pass {
			c.Emit(i, r)
			return nil
		}
	}
	c.Emit(len(n.Branches), r)
	return nil
}

// Table makes a changelog by key of records: an upsert of each, a delete of one without
// a value, with the header Herald-Op: delete, or for which Delete is true. A delete
// without a value is of the key that its header Herald-Key says.
type Table struct {
	noTimers
	Key    *Key
	Delete *expr.Program // nil: by tombstone only
}

var errTombstone = errors.New("a record without a value, and no header Herald-Key that says which row is gone")

// Process implements stream.Node.
func (n *Table) Process(c stream.Context, _ int, r *stream.Record) error {
	t := *r
	if r.Value.IsNull() {
		t.Op = stream.Delete
		text := header(r.Header, "Herald-Key")
		if text == "" {
			return errTombstone
		}
		// The text of a string and of a number are the same: whichever the row has.
		t.Key = value.AppendKey(nil, value.OfString(text))
		c.Emit(0, &t)
		if v, err := value.Parse([]byte(text), value.Options{}); err == nil && v.Kind() != value.String {
			other := t
			other.Key = value.AppendKey(nil, v)
			c.Emit(0, &other)
		}
		return nil
	}
	if header(r.Header, "Herald-Op") == "delete" {
		t.Op = stream.Delete
	} else if n.Delete != nil {
		gone, err := match(n.Delete, c, r)
		if err != nil {
			return err
		}
		if gone {
			t.Op = stream.Delete
		}
	}
	var err error
	if t.Key, err = n.Key.key(c, r); err != nil {
		return err
	}
	c.Emit(0, &t)
	return nil
}
