package spec

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/value"
)

func (c *compiler) inputs() {
	for i := range c.s.Inputs {
		in := &c.s.Inputs[i]
		g := graph.Input{
			Name: in.Name, Topic: in.Topic.Text, Subjects: in.Subjects,
			From:   graph.From{New: in.From.New, Sequence: topics.Sequence(in.From.Sequence)},
			Decode: decoder(in.Codec, nil), Policy: c.policy(in.OnError),
		}
		if s := c.schema(in.Codec); s != nil {
			g.Decode, g.Write = bySchema(s), func(v value.Value) ([]byte, error) { return s.Append(nil, v) }
		}
		if !in.From.Time.IsZero() {
			g.From.Time = stream.Time(in.From.Time.UnixNano())
		}
		if in.Where.Set() {
			g.Where = c.compile(in.Where, nil, true)
		}
		event := in.Event
		where := ""
		if !event.Set() && !in.Stored {
			event, where = c.s.Time.Event, "; an input that has another time says so: time: {event: …}, or {stored: true} for when a message was stored"
		}
		if strings.TrimSpace(event.Text) == "time" {
			event.Text = "this.time" // what is looked for can't be what is meant
		}
		if event.Set() {
			if p := c.compile(event, nil, false); p != nil {
				c.events[i] = p
				g.EventTime = eventTime(p, in.Unit, where)
			}
		}
		c.g.Inputs = append(c.g.Inputs, g)
		out := &outlet{name: in.Name, at: in.At, inputs: map[int]bool{i: true}}
		out.connect = func(e graph.Edge) { c.g.Inputs[i].Out = append(c.g.Inputs[i].Out, e) }
		c.outs[in.Name] = out
		if in.Table {
			c.tableInput(in, out)
		}
	}
}

// tableInput puts a table behind an input.
func (c *compiler) tableInput(in *Input, from *outlet) {
	k, names := c.key(in.Key, nil)
	t := &steps.Table{Key: k}
	if in.Delete.Set() {
		t.Delete = c.compile(in.Delete, nil, true)
	}
	st := &Step{Name: in.Name, At: in.At, OnError: in.OnError, Body: &Table{Key: in.Key, Delete: in.Delete}}
	i, out := c.node(st, in.Name, "table", t, stream.Repeatable, from)
	c.g.Nodes[i].Keyed = false
	from.connect(graph.Edge{Node: i})
	out.keyed, out.keys, out.changelog = true, names, true
	c.outs[in.Name] = out
}

// decoder reads payloads, of JSON only some fields where only isn't nil. An empty one is
// null: a tombstone.
func decoder(codec Codec, only []string) func(m *topics.Message) (value.Value, error) {
	switch codec.Kind {
	case "text":
		return func(m *topics.Message) (value.Value, error) {
			if len(m.Payload) == 0 {
				return value.Value{}, nil
			}
			if !utf8.Valid(m.Payload) {
				return value.Value{}, fmt.Errorf("a payload that is not UTF-8, for the codec text")
			}
			return value.OfString(string(m.Payload)), nil
		}
	case "bytes":
		return func(m *topics.Message) (value.Value, error) {
			if len(m.Payload) == 0 {
				return value.Value{}, nil
			}
			return value.OfBytes(m.Payload), nil
		}
	}
	o := value.Options{Decimals: codec.Decimals, Keep: true, Only: only}
	return func(m *topics.Message) (value.Value, error) {
		if len(m.Payload) == 0 {
			return value.Value{}, nil
		}
		return value.Parse(m.Payload, o)
	}
}

// bySchema reads payloads that have one.
func bySchema(s *schema.Schema) func(m *topics.Message) (value.Value, error) {
	return func(m *topics.Message) (value.Value, error) {
		if len(m.Payload) == 0 {
			return value.Value{}, nil
		}
		v, err := s.Decode(m.Payload)
		if err != nil {
			return v, fmt.Errorf("the payload can't be read by the %s schema: %w", s.Format(), err)
		}
		return v, nil
	}
}

// The years that event time has.
var (
	timeLeast    = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	timeGreatest = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
)

// eventTime makes what finds a record's time.
func eventTime(p *expr.Program, unit, hint string) func(r *stream.Record, clock stream.Time) (stream.Time, error) {
	scale := map[string]int64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}[unit]
	return func(r *stream.Record, clock stream.Time) (stream.Time, error) {
		v, err := stream.Eval(p, r, clock)
		if err != nil {
			return 0, fmt.Errorf("event time: %w%s", err, hint)
		}
		var ns int64
		switch v.Kind() {
		case value.Int:
			i, _ := v.Int()
			if i > math.MaxInt64/scale || i < math.MinInt64/scale {
				return 0, fmt.Errorf("event time: %d %s is out of range", i, unit)
			}
			ns = i * scale
		case value.Time:
			ns, _ = v.Nanos()
		case value.String:
			t, err := time.Parse(time.RFC3339Nano, v.Str())
			if err != nil {
				return 0, fmt.Errorf("event time: %q is not like 2026-01-31T08:00:00Z", v.Str())
			}
			if t.Year() < 1700 || t.Year() >= 2250 {
				return 0, fmt.Errorf("event time: the year %d is out of range", t.Year())
			}
			ns = t.UnixNano()
		default:
			return 0, fmt.Errorf("event time: %s gives a %s, not an int, a timestamp or a string", p.Text(), v.Kind())
		}
		if ns < timeLeast || ns > timeGreatest {
			return 0, fmt.Errorf("event time: %s is out of range: years 1700 to 2249", time.Unix(0, ns).UTC().Format(time.RFC3339))
		}
		return stream.Time(ns), nil
	}
}

var braces = regexp.MustCompile(`\{([^{}]*)\}`)

// template is a subject with fields in braces.
type template struct {
	texts []string // one more than fields
	progs []*expr.Program
}

func (c *compiler) template(e Expr, from *outlet) *template {
	t := &template{}
	at := 0
	for _, m := range braces.FindAllStringSubmatchIndex(e.Text, -1) {
		t.texts = append(t.texts, e.Text[at:m[0]])
		at = m[1]
		place := e.At
		place.Column += m[2]
		if p := c.compile(Expr{e.Text[m[2]:m[3]], place}, from, false); p != nil {
			t.progs = append(t.progs, p)
		}
	}
	t.texts = append(t.texts, e.Text[at:])
	rest := strings.Join(t.texts, "x")
	if strings.ContainsAny(rest, " \t\r\n*>{}") || strings.Contains(rest, "..") || strings.HasPrefix(rest, ".") || strings.HasSuffix(rest, ".") || rest == "" {
		c.problem(e.At, "%q is no subject to publish on: tokens divided by points, without wildcards and spaces, fields in braces", e.Text)
	}
	return t
}

// pattern is the subject with * for the tokens that have fields.
func (t *template) pattern() string {
	tokens := strings.Split(strings.Join(t.texts, "*"), ".")
	for i := range tokens {
		if strings.Contains(tokens[i], "*") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

func (t *template) eval(v stream.View) (string, error) {
	if len(t.progs) == 0 {
		return t.texts[0], nil
	}
	var b strings.Builder
	for i, p := range t.progs {
		b.WriteString(t.texts[i])
		f, err := stream.Eval(p, v.Record, v.Clock)
		if err != nil {
			return "", fmt.Errorf("subject: %w", err)
		}
		b.WriteString(token(f))
	}
	b.WriteString(t.texts[len(t.progs)])
	return b.String(), nil
}

// token is a value as one token of a subject: what can't stand in one becomes _.
func token(v value.Value) string {
	s := plain(v)
	if s == "" {
		return "_"
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == '.' || r == '*' || r == '>' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}

// plain is a value as text: a string as it is, anything else as JSON.
func plain(v value.Value) string {
	if v.Kind() == value.String {
		return v.Str()
	}
	return string(value.AppendJSON(nil, v))
}

func (c *compiler) outputs() {
	for i := range c.s.Outputs {
		o := &c.s.Outputs[i]
		from := c.take(o.From, "an output")
		if from == nil {
			continue
		}
		name, subject := o.Topic.Text, o.Subject
		if o.Live.Set() {
			name, subject = o.Live.Text, o.Live
			c.warn(o.Live.At, "the live output %s is kept by nobody: at most once after a failure", o.Live.Text)
		}
		enc := &encoder{changelog: from.changelog, codec: o.Codec.Kind, schema: c.schema(o.Codec)}
		if subject.Set() {
			enc.subject = c.template(subject, from)
		}
		if o.Key.Set() {
			enc.key = c.compile(o.Key, from, false)
		} else if from.changelog {
			c.warn(o.At, "the output %s is a changelog without a key: say with key: FIELD which row a record is of, or a delete can't be told", name)
		}
		enc.headers = c.fields(o.Headers, from)
		for _, h := range o.Headers {
			if !isHeader(h.Name) {
				c.problem(h.Expr.At, "%q can't be the name of a header, or is Herald's own", h.Name)
			}
		}
		c.encoders[len(c.g.Sinks)] = enc
		sink := graph.Sink{Name: name, Topic: o.Topic.Text, Create: c.create(o), Encode: enc.encode, Policy: c.policy(o.OnError)}
		if enc.schema != nil {
			sink.Read = enc.schema.Decode
		}
		c.g.Sinks = append(c.g.Sinks, sink)
		from.connect(graph.ToSink(len(c.g.Sinks) - 1))
	}
}

func isHeader(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == ':' || s[i] >= 0x7f {
			return false
		}
	}
	low := strings.ToLower(s)
	return s != "" && !strings.HasPrefix(low, "herald-") && !strings.HasPrefix(low, "nats-")
}

// subjectSink makes a sink of a subject for late records or dead letters.
func (c *compiler) subjectSink(name string, to Expr) int {
	enc := &encoder{codec: "json", subject: c.template(to, nil), pass: true}
	c.encoders[len(c.g.Sinks)] = enc
	c.g.Sinks = append(c.g.Sinks, graph.Sink{Name: name, Aside: enc.subject.pattern(), Encode: enc.encode, Policy: c.policy(nil)})
	return len(c.g.Sinks) - 1
}

// errorsOut connects the dead letters.
func (c *compiler) errorsOut() {
	e := c.s.Errors
	used := e.Policy == "dead-letter"
	own := func(o *Errors) {
		if o == nil {
			return
		}
		used = used || o.Policy == "dead-letter"
		if o.To.Set() && e.To.Set() && o.To.Text != e.To.Text {
			c.problem(o.To.At, "dead letters of one operator go to one subject: %s", e.To.Text)
		}
		if o.To.Set() {
			e.To = o.To
		}
	}
	for i := range c.s.Inputs {
		own(c.s.Inputs[i].OnError)
	}
	for i := range c.s.Steps {
		own(c.s.Steps[i].OnError)
	}
	for i := range c.s.Outputs {
		own(c.s.Outputs[i].OnError)
	}
	switch {
	case e.To.Set():
		sink := c.subjectSink("errors", e.To)
		c.g.Sinks[sink].Policy = graph.Stop // a dead letter of a dead letter would go round
		c.g.Errors = []graph.Edge{graph.ToSink(sink)}
	case used:
		c.problem(e.At, "dead letters need a subject: errors: {policy: dead-letter, to: SUBJECT}")
	}
}
