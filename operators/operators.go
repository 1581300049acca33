// Package operators is stream processing as functions over messages and state: it
// knows neither the network nor consensus. The broker feeds it and commits what it
// gives.
//
// Here is how an operator is written in Go: the same Spec as a file in the language
// (docs/operators.md), with the same digest.
//
//	op := operators.New("quakes_per_hour").EventTime("this.time", "ms").Disorder(10 * time.Second)
//	op.Input("QUAKES").
//		Filter("mag >= 4.5").
//		Key("net").
//		Tumble(time.Hour).
//		Aggregate(operators.Field("events", "count()"), operators.Field("mean", "avg(mag)")).
//		To("QUAKES_HOURLY")
//	s := op.Spec()
//
// What a method doesn't offer is set in the Spec, whose fields are exported. What is
// wrong with an expression spec.Compile says, with the step's name.
package operators

import (
	"time"

	"github.com/heraldmq/herald/operators/spec"
)

// Operator is an operator that is being written. For one goroutine.
type Operator struct{ s *spec.Spec }

// New begins an operator.
func New(name string) *Operator {
	return &Operator{&spec.Spec{File: "operator " + name, Operator: spec.Expr{Text: name}}}
}

// Spec returns what was written, with names and defaults filled in.
func (o *Operator) Spec() *spec.Spec {
	o.s.Normalize()
	return o.s
}

// Version sets the version that is shown.
func (o *Operator) Version(v string) *Operator { o.s.Version = v; return o }

// Summary sets the summary that is shown.
func (o *Operator) Summary(text string) *Operator { o.s.Summary = text; return o }

// Recovery sets what is kept for the case of a failure; the default is active.
func (o *Operator) Recovery(mode string) *Operator { o.s.Recovery.Text = mode; return o }

// EventTime says how event time is found; the default is when a message was stored. unit
// is that of an int: s, ms, us or ns.
func (o *Operator) EventTime(expression, unit string) *Operator {
	o.s.Time.Event, o.s.Time.Unit = spec.Expr{Text: expression}, unit
	return o
}

// Disorder says how much older than the newest a record may be and not be late; the
// default is 0.
func (o *Operator) Disorder(d time.Duration) *Operator { o.s.Time.Disorder = &d; return o }

// IdleAfter says when an input without records stops holding event time up; the default
// is 30 s, 0 is never.
func (o *Operator) IdleAfter(d time.Duration) *Operator { o.s.Time.IdleAfter = &d; return o }

// MaxFuture says how far in the future a timestamp is believed; the default is 1 h, 0
// believes any.
func (o *Operator) MaxFuture(d time.Duration) *Operator { o.s.Time.MaxFuture = &d; return o }

// DeadLetters sends records that can't be processed to a subject; the default is to
// stop in front of them.
func (o *Operator) DeadLetters(subject string) *Operator {
	o.s.Errors = spec.Errors{Policy: "dead-letter", To: spec.Expr{Text: subject}}
	return o
}

// TTL forgets keys of running aggregates, tops and count windows that weren't used for
// as long; the default is never.
func (o *Operator) TTL(d time.Duration) *Operator { o.s.State.TTL = d; return o }

// Input reads a topic from its first message on, as JSON. edit may change the input.
func (o *Operator) Input(topic string, edit ...func(in *spec.Input)) *Stream {
	in := spec.Input{Topic: spec.Expr{Text: topic}}
	for _, f := range edit {
		f(&in)
	}
	if in.Name == "" {
		in.Name = topic
	}
	o.s.Inputs = append(o.s.Inputs, in)
	return &Stream{o, in.Name}
}

// Field is a named expression, or a call of an aggregate.
func Field(name, expression string) spec.Field {
	return spec.Field{Name: name, Expr: spec.Expr{Text: expression}}
}

// Stream is what a step or an input gives. It may be taken by any number of steps.
type Stream struct {
	o    *Operator
	name string
}

// Name returns the name steps take it by.
func (s *Stream) Name() string { return s.name }

// Named gives the step that was added last, which must be the stream's, a name.
func (s *Stream) Named(name string) *Stream {
	if n := len(s.o.s.Steps); n > 0 {
		s.o.s.Steps[n-1].Name, s.name = name, name
	}
	return s
}

// OnError sets the policy of the step that was added last: stop, skip or dead-letter.
func (s *Stream) OnError(policy string) *Stream {
	if n := len(s.o.s.Steps); n > 0 {
		s.o.s.Steps[n-1].OnError = &spec.Errors{Policy: policy}
	}
	return s
}

// Add adds a step of any kind that takes the stream, and others besides.
func (s *Stream) Add(body spec.Body, others ...*Stream) *Stream {
	st := spec.Step{Body: body, From: []spec.Expr{{Text: s.name}}}
	for _, other := range others {
		st.From = append(st.From, spec.Expr{Text: other.name})
	}
	s.o.s.Steps = append(s.o.s.Steps, st)
	s.o.s.Normalize() // names the step
	return &Stream{s.o, s.o.s.Steps[len(s.o.s.Steps)-1].Name}
}

// Branch takes a branch of a split, or a side output: late.
func (s *Stream) Branch(name string) *Stream { return &Stream{s.o, s.name + "." + name} }

// To writes the stream to a durable topic, as JSON. edit may change the output.
func (s *Stream) To(topic string, edit ...func(out *spec.Output)) *Stream {
	out := spec.Output{Topic: spec.Expr{Text: topic}, From: spec.Expr{Text: s.name}}
	for _, f := range edit {
		f(&out)
	}
	s.o.s.Outputs = append(s.o.s.Outputs, out)
	return s
}

// Live publishes the stream on a subject that nobody keeps.
func (s *Stream) Live(subject string) *Stream {
	s.o.s.Outputs = append(s.o.s.Outputs, spec.Output{Live: spec.Expr{Text: subject}, From: spec.Expr{Text: s.name}})
	return s
}
