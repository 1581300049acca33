package spec

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/heraldmq/herald/topics/value"
)

// Normalize fills in the defaults and the names that steps and inputs have where none
// is said, and where each takes its records from. It changes nothing that is said.
func (s *Spec) Normalize() {
	or(&s.Recovery.Text, "active")
	or(&s.Standby.Text, "auto")
	or(&s.State.Backend, "auto")
	or(&s.Time.Unit, "ms")
	or(&s.Errors.Policy, "stop")
	orNumber(&s.Checkpoint, 10*time.Second)
	orNumber(&s.Partitions, 1)
	orNumber(&s.State.Max, 256<<20)
	orNumber(&s.Limits.Batch, 1000)
	orNumber(&s.Limits.BatchBytes, 256<<10)
	orNumber(&s.Limits.Linger, 5*time.Millisecond)
	orNumber(&s.Limits.InFlight, 4)
	for _, p := range []struct {
		to *(*time.Duration)
		d  time.Duration
	}{{&s.Time.Disorder, 0}, {&s.Time.IdleAfter, 30 * time.Second}, {&s.Time.MaxFuture, time.Hour}} {
		if *p.to == nil {
			d := p.d
			*p.to = &d
		}
	}
	for i := range s.Inputs {
		in := &s.Inputs[i]
		or(&in.Name, in.Topic.Text)
		or(&in.Codec.Kind, "json")
		or(&in.Unit, s.Time.Unit)
	}
	before := Expr{}
	if len(s.Inputs) > 0 {
		before.Text = s.Inputs[0].Name
	}
	count := map[string]int{}
	for i := range s.Steps {
		st := &s.Steps[i]
		kind := st.Body.kind()
		count[kind]++
		or(&st.Name, fmt.Sprintf("%s_%d", kind, count[kind]))
		if len(st.From) == 0 && before.Text != "" {
			st.From = []Expr{{before.Text, st.At}}
		}
		before.Text = st.Name
		switch b := st.Body.(type) {
		case *Window:
			orNumber(&b.CountEvery, b.Count)
		case *Join:
			or(&b.Kind, "inner")
		case *Process:
			// nothing has a default
		}
	}
	for i := range s.Outputs {
		o := &s.Outputs[i]
		or(&o.Codec.Kind, "json")
		if !o.From.Set() {
			o.From = Expr{before.Text, o.At}
		}
	}
}

func or(s *string, other string) {
	if *s == "" {
		*s = other
	}
}

func orNumber[T int | int64 | time.Duration](n *T, other T) {
	if *n == 0 {
		*n = other
	}
}

// JSON returns the canonical form: a file in the language, the same bytes for the same
// operator however it was written.
func (s *Spec) JSON() []byte {
	o := &builder{}
	o.text("operator", s.Operator.Text)
	o.text("version", s.Version)
	o.text("summary", s.Summary)
	o.text("recovery", s.Recovery.Text)
	o.text("standby", s.Standby.Text)
	o.flag("accept_loss", s.AcceptLoss)
	o.duration("checkpoint", s.Checkpoint)
	o.number("partitions", int64(s.Partitions))
	o.object("state", func(o *builder) {
		o.number("max", s.State.Max)
		o.text("backend", s.State.Backend)
		o.duration("ttl", s.State.TTL)
	})
	o.object("time", func(o *builder) {
		o.text("event", s.Time.Event.Text)
		o.text("unit", s.Time.Unit)
		o.always("disorder", durationOr(s.Time.Disorder, 0))
		o.always("idle_after", durationOr(s.Time.IdleAfter, 0))
		o.always("max_future", durationOr(s.Time.MaxFuture, 0))
	})
	o.object("limits", func(o *builder) {
		o.number("batch", int64(s.Limits.Batch))
		o.number("batch_bytes", s.Limits.BatchBytes)
		o.duration("linger", s.Limits.Linger)
		o.number("in_flight", int64(s.Limits.InFlight))
	})
	o.errors("errors", &s.Errors)
	var inputs, all, outputs []value.Value
	for i := range s.Inputs {
		inputs = append(inputs, s.Inputs[i].canonical())
	}
	for i := range s.Steps {
		all = append(all, s.Steps[i].canonical())
	}
	for i := range s.Outputs {
		outputs = append(outputs, s.Outputs[i].canonical())
	}
	o.list("inputs", inputs)
	o.list("steps", all)
	o.list("outputs", outputs)
	o.value("advertise", s.Advertise)
	return value.AppendJSON(nil, o.done())
}

// Digest is the SHA-256 of the canonical form.
func (s *Spec) Digest() [32]byte { return sha256.Sum256(s.JSON()) }

// builder makes an object; what has no value is left out.
type builder struct{ fields []value.Field }

func (o *builder) done() value.Value { return value.OfObject(o.fields...) }

func (o *builder) value(name string, v value.Value) {
	if !v.IsNull() {
		o.fields = append(o.fields, value.Field{Name: name, Value: v})
	}
}

func (o *builder) text(name, s string) {
	if s != "" {
		o.value(name, value.OfString(s))
	}
}

func (o *builder) flag(name string, b bool) {
	if b {
		o.value(name, value.OfBool(true))
	}
}

func (o *builder) number(name string, n int64) {
	if n != 0 {
		o.value(name, value.OfInt(n))
	}
}

func (o *builder) always(name string, d time.Duration) { o.value(name, value.OfString(d.String())) }

func (o *builder) duration(name string, d time.Duration) {
	if d != 0 {
		o.always(name, d)
	}
}

func (o *builder) object(name string, f func(o *builder)) {
	in := &builder{}
	if f(in); len(in.fields) > 0 {
		o.value(name, in.done())
	}
}

func (o *builder) list(name string, l []value.Value) {
	if len(l) > 0 {
		o.value(name, value.OfList(l))
	}
}

func (o *builder) texts(name string, l []string) {
	var all []value.Value
	for _, s := range l {
		all = append(all, value.OfString(s))
	}
	o.list(name, all)
}

func fieldsOf(fields []Field) value.Value {
	o := &builder{}
	for _, f := range fields {
		o.value(f.Name, value.OfString(f.Expr.Text))
	}
	return o.done()
}

func (o *builder) named(name string, fields []Field) {
	if len(fields) > 0 {
		o.value(name, fieldsOf(fields))
	}
}

// key says a key with the names its fields will have.
func (o *builder) key(name string, by []Field) {
	if len(by) > 0 {
		o.value(name, fieldsOf(namedKey(by)))
	}
}

func (o *builder) errors(name string, e *Errors) {
	if e != nil && e.Policy != "" {
		o.object(name, func(o *builder) {
			o.text("policy", e.Policy)
			o.text("to", e.To.Text)
		})
	}
}

func (o *builder) codec(c Codec) {
	if c.Schema.Format != "" {
		o.value("codec", c.Schema.Codec())
		return
	}
	if !c.Decimals {
		o.text("codec", c.Kind)
		return
	}
	o.object("codec", func(o *builder) {
		o.object("json", func(o *builder) { o.text("numbers", "decimal") })
	})
}

func (in *Input) canonical() value.Value {
	o := &builder{}
	o.text("name", in.Name)
	o.text("topic", in.Topic.Text)
	o.texts("subjects", in.Subjects)
	switch f := in.From; {
	case f.New:
		o.text("from", "new")
	case f.Sequence > 0:
		o.object("from", func(o *builder) { o.value("sequence", value.OfUint(f.Sequence)) })
	case !f.Time.IsZero():
		o.object("from", func(o *builder) { o.text("time", f.Time.UTC().Format(time.RFC3339Nano)) })
	default:
		o.text("from", "first")
	}
	o.codec(in.Codec)
	o.text("where", in.Where.Text)
	o.object("time", func(o *builder) {
		o.text("event", in.Event.Text)
		o.flag("stored", in.Stored)
		o.text("unit", in.Unit)
	})
	o.flag("table", in.Table)
	o.key("key", in.Key)
	o.text("delete", in.Delete.Text)
	o.errors("on_error", in.OnError)
	return o.done()
}

func (out *Output) canonical() value.Value {
	o := &builder{}
	o.text("topic", out.Topic.Text)
	o.text("live", out.Live.Text)
	o.text("from", out.From.Text)
	o.text("subject", out.Subject.Text)
	o.text("key", out.Key.Text)
	o.named("headers", out.Headers)
	o.codec(out.Codec)
	o.value("create", out.Create)
	o.value("advertise", out.Advertise)
	o.errors("on_error", out.OnError)
	return o.done()
}

// namedKey gives each expression of a key its name: the last name in it, or key, key_2.
func namedKey(by []Field) []Field {
	out := make([]Field, len(by))
	used := map[string]bool{}
	for i, f := range by {
		if f.Name == "" {
			f.Name = lastName(f.Expr.Text)
		}
		if f.Name == "" || used[f.Name] {
			f.Name = "key"
			if i > 0 || used["key"] {
				f.Name = fmt.Sprintf("key_%d", i+1)
			}
		}
		used[f.Name] = true
		out[i] = f
	}
	return out
}

// lastName is the last name of a path of names, "" of anything else.
func lastName(text string) string {
	text = strings.TrimSpace(text)
	last := text
	for _, part := range strings.Split(text, ".") {
		if !isName(part) {
			return ""
		}
		last = part
	}
	return last
}

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
