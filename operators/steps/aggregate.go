package steps

import (
	"fmt"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// Aggregate is one field of the result of a window or of a running aggregate.
type Aggregate struct {
	Name string        // of the field
	Func string        // one of Functions
	Arg  *expr.Program // what is aggregated; nil for count()
	By   *expr.Program // of min, max and top: what is compared, where that isn't Arg
	N    int           // of top; of collect and distinct: the most there may be
}

// Functions are the aggregates there are, with what they give.
var Functions = map[string]string{
	"count":         "count() counts records, count(x) those where x isn't null",
	"sum":           "sum(x) of ints and decimals is exact, of doubles compensated",
	"avg":           "avg(x) is the mean: a double, or a decimal of 34 digits",
	"min":           "min(x), or min(x, by: y): the x with the least y",
	"max":           "max(x), or max(x, by: y): the x with the greatest y",
	"var":           "var(x) is the variance of the population",
	"stddev":        "stddev(x) is the standard deviation of the population",
	"var_sample":    "var_sample(x) is the variance of a sample",
	"stddev_sample": "stddev_sample(x) is the standard deviation of a sample",
	"first":         "first(x) is that of the earliest record, by event time",
	"last":          "last(x) is that of the latest record, by event time",
	"collect":       "collect(x, max: n) lists them by event time; more than n is an error",
	"top":           "top(n, by: y, of: x) lists the x with the greatest y",
	"distinct":      "distinct(x, max: n) counts different values; more than n is an error",
}

// KeptMax is the most values collect and distinct keep where nothing is said, and top at all.
const KeptMax = 10_000

// new returns an empty accumulator.
func (a *Aggregate) new() accumulator {
	n := a.N
	if n <= 0 {
		n = KeptMax
	}
	switch a.Func {
	case "count":
		return &count{}
	case "sum":
		return &sum{}
	case "avg":
		return &avg{}
	case "var", "stddev", "var_sample", "stddev_sample":
		return &variance{root: a.Func == "stddev" || a.Func == "stddev_sample", sample: a.Func == "var_sample" || a.Func == "stddev_sample"}
	case "min":
		return &best{n: 1}
	case "max":
		return &best{n: 1, direction: descending}
	case "first":
		return &best{n: 1, untold: true}
	case "last":
		return &best{n: 1, untold: true, direction: latest}
	case "collect":
		return &best{n: n, untold: true, list: true, full: true}
	case "top":
		return &best{n: max(a.N, 1), list: true, direction: descending}
	case "distinct":
		return &distinct{max: n}
	}
	return nil // lint knows the names
}

// args are what a record brings to an aggregate.
type args struct{ arg, by value.Value }

var one = value.OfInt(1)

func (a *Aggregate) eval(c stream.Context, r *stream.Record) (args, error) {
	got := args{arg: one}
	var err error
	if a.Arg != nil {
		if got.arg, err = eval(a.Arg, c, r); err != nil {
			return got, fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	got.by = got.arg
	if a.By != nil {
		if got.by, err = eval(a.By, c, r); err != nil {
			return got, fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return got, nil
}

// row is the accumulators of one window, or of a key.
type row []accumulator

type aggregates []Aggregate

func (all aggregates) newRow() row {
	r := make(row, len(all))
	for i := range all {
		r[i] = all[i].new()
	}
	return r
}

// evalAll evaluates what a record brings to each.
func (all aggregates) evalAll(c stream.Context, r *stream.Record) ([]args, error) {
	got := make([]args, len(all))
	for i := range all {
		var err error
		if got[i], err = all[i].eval(c, r); err != nil {
			return nil, err
		}
	}
	return got, nil
}

func (all aggregates) add(to row, got []args, time stream.Time, at stream.Position) error {
	for i := range all {
		if err := all[i].add(to[i], got[i], time, at); err != nil {
			return err
		}
	}
	return nil
}

func (a *Aggregate) add(to accumulator, got args, time stream.Time, at stream.Position) error {
	if err := to.add(got, time, at); err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	if s, ok := to.(interface{ check() error }); ok {
		if err := s.check(); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

func (all aggregates) merge(to, from row) error {
	for i := range all {
		if err := to[i].merge(from[i]); err != nil {
			return fmt.Errorf("%s: %w", all[i].Name, err)
		}
	}
	return nil
}

func (all aggregates) load(b []byte) (row, error) {
	r := all.newRow()
	var err error
	for i := range r {
		if b, err = r[i].load(b); err != nil {
			return nil, fmt.Errorf("%s: %w", all[i].Name, err)
		}
	}
	if len(b) > 0 {
		return nil, errAccumulator
	}
	return r, nil
}

// weight is about what a row takes in memory that takes size in state.
func (all aggregates) weight(size int) int { return 4*size + 64*len(all) }

func (r row) append(dst []byte) []byte {
	for _, a := range r {
		dst = a.append(dst)
	}
	return dst
}

// result makes the record's value: the key's fields, then window_start and window_end
// where there is a window, then the aggregates.
func (g *Aggregation) result(r row, key []byte, start, end *stream.Time) (value.Value, error) {
	values, err := keyValues(make([]value.Value, 0, len(g.KeyNames)+2+len(r)), key, g.KeyNames)
	if err != nil {
		return value.Value{}, err
	}
	keyed, form := len(values) > 0, 0
	for bit, is := range []bool{keyed, start != nil, end != nil} {
		if is {
			form |= 1 << bit
		}
	}
	if start != nil {
		values = append(values, value.OfNanos(int64(*start)))
	}
	if end != nil {
		values = append(values, value.OfNanos(int64(*end)))
	}
	for i := range r {
		values = append(values, r[i].result())
	}
	s := &g.shapes[form]
	if s.names == nil {
		s.set(g.names(keyed, start != nil, end != nil))
	}
	return s.of(values), nil
}

func (g *Aggregation) names(keyed, start, end bool) []string {
	names := []string{}
	if keyed {
		names = append(names, g.KeyNames...)
	}
	if start {
		names = append(names, "window_start")
	}
	if end {
		names = append(names, "window_end")
	}
	for i := range g.Aggregates {
		names = append(names, g.Aggregates[i].Name)
	}
	return names
}

// keyValues appends the fields of a key. A composite key is a list with a name for each.
func keyValues(dst []value.Value, key []byte, names []string) ([]value.Value, error) {
	if len(key) == 0 || len(names) == 0 {
		return dst, nil
	}
	v, _, err := value.FromKey(key)
	if err != nil {
		return nil, fmt.Errorf("a record's key: %w", err)
	}
	if len(names) == 1 {
		return append(dst, v), nil
	}
	parts := v.List()
	if len(parts) != len(names) {
		return nil, fmt.Errorf("a record's key has %d parts instead of %d", len(parts), len(names))
	}
	return append(dst, parts...), nil
}
