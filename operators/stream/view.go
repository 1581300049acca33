package stream

import (
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// View is a record as expressions see it. Its key is null: an expression finds what a
// record is keyed by in the payload.
type View struct {
	Record *Record
	Clock  Time
}

var _ expr.Message = View{}

func (v View) Payload() (value.Value, error) { return v.Record.Value, nil }
func (v View) Subject() string               { return v.Record.Subject }
func (v View) Header() []byte                { return v.Record.Header }
func (v View) Key() value.Value              { return value.Value{} }
func (v View) Time() int64                   { return int64(v.Record.Time) }
func (v View) Sequence() uint64              { return uint64(v.Record.Origin.Sequence) }
func (v View) Now() int64                    { return int64(v.Clock) }

// Eval evaluates an expression over a record.
func Eval(p *expr.Program, r *Record, clock Time) (value.Value, error) {
	if v, ok := p.Quick(r.Value); ok {
		return v, nil
	}
	return p.Eval(View{Record: r, Clock: clock})
}

// Match evaluates a condition over a record.
func Match(p *expr.Program, r *Record, clock Time) (bool, error) {
	if v, ok := p.Quick(r.Value); ok && v.Kind() == value.Bool {
		return v.Bool(), nil
	}
	return p.Match(View{Record: r, Clock: clock})
}
