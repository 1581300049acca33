package spec

import (
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/topics/schema"
)

// Parse reads an operator's file. file is its name, for problems. The error is Problems
// and says everything that is wrong with the form; what is wrong with the meaning
// Compile says. A Spec that is returned has its defaults and names filled in.
func Parse(file string, text []byte) (*Spec, error) {
	d := &reader{reporter{file: file}}
	s := &Spec{File: file}
	if n := d.document(text); n != nil {
		d.spec(s, n)
	}
	if d.failed() {
		d.all.sort()
		return nil, d.all
	}
	s.Normalize()
	return s, nil
}

func (d *reader) spec(s *Spec, n *yaml.Node) {
	d.mapping(n, "an operator",
		key{"operator", d.expr(&s.Operator, "operator")},
		key{"version", d.str(&s.Version, "version")},
		key{"summary", d.str(&s.Summary, "summary")},
		key{"recovery", d.exprChoice(&s.Recovery, "recovery", "active", "passive", "upstream", "amnesia")},
		key{"standby", d.exprChoice(&s.Standby, "standby", "auto", "delta", "replay")},
		key{"accept_loss", d.boolean(&s.AcceptLoss, "accept_loss")},
		key{"checkpoint", d.duration(&s.Checkpoint, "checkpoint", time.Millisecond)},
		key{"partitions", d.integer(&s.Partitions, "partitions", 1, 120)},
		key{"state", func(n *yaml.Node) {
			d.mapping(n, "state",
				key{"max", d.size(&s.State.Max, "max")},
				key{"backend", d.choice(&s.State.Backend, "backend", "auto", "memory", "pebble")},
				key{"ttl", d.duration(&s.State.TTL, "ttl", 0)})
		}},
		key{"time", func(n *yaml.Node) {
			d.mapping(n, "time",
				key{"event", d.expr(&s.Time.Event, "event")},
				key{"unit", d.choice(&s.Time.Unit, "unit", "s", "ms", "us", "ns")},
				key{"disorder", d.durationPtr(&s.Time.Disorder, "disorder")},
				key{"idle_after", d.durationPtr(&s.Time.IdleAfter, "idle_after")},
				key{"max_future", d.durationPtr(&s.Time.MaxFuture, "max_future")})
		}},
		key{"limits", func(n *yaml.Node) {
			d.mapping(n, "limits",
				key{"batch", d.integer(&s.Limits.Batch, "batch", 1, 100_000)},
				key{"batch_bytes", d.size(&s.Limits.BatchBytes, "batch_bytes")},
				key{"linger", d.duration(&s.Limits.Linger, "linger", 0)},
				key{"in_flight", d.integer(&s.Limits.InFlight, "in_flight", 1, 64)})
		}},
		key{"errors", func(n *yaml.Node) { s.Errors = *d.errors(n, "errors") }},
		key{"inputs", d.list("inputs", func(n *yaml.Node) { s.Inputs = append(s.Inputs, d.input(n)) })},
		key{"steps", d.list("steps", func(n *yaml.Node) { d.step(s, n) })},
		key{"outputs", d.list("outputs", func(n *yaml.Node) { s.Outputs = append(s.Outputs, d.output(n)) })},
		key{"advertise", func(n *yaml.Node) { s.Advertise = d.data(n) }},
		key{"tests", d.list("tests", func(n *yaml.Node) { s.Tests = append(s.Tests, d.test(n)) })},
	)
	for _, name := range []string{"operator", "inputs", "outputs"} {
		if n.Kind == yaml.MappingNode && !has(n, name) {
			d.problem(at(n), "an operator needs %s", name)
		}
	}
}

func (d *reader) exprChoice(to *Expr, want string, choices ...string) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		d.choice(&to.Text, want, choices...)(n)
		to.At = at(n)
	}
}

func (d *reader) list(want string, each func(n *yaml.Node)) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			d.problem(at(n), "%s is a list, not %s", want, kindOf(n))
			return
		}
		for _, item := range n.Content {
			each(item)
		}
	}
}

// errors reads a policy: a word, or a mapping.
func (d *reader) errors(n *yaml.Node, want string) *Errors {
	e := &Errors{At: at(n)}
	policy := d.choice(&e.Policy, "policy", "stop", "skip", "dead-letter")
	if n.Kind != yaml.MappingNode {
		d.choice(&e.Policy, want, "stop", "skip", "dead-letter")(n)
		return e
	}
	d.mapping(n, want, key{"policy", policy}, key{"to", d.expr(&e.To, "to")})
	if e.To.Set() && e.Policy == "" {
		e.Policy = "dead-letter"
	}
	if e.To.Set() && e.Policy != "dead-letter" {
		d.problem(e.To.At, "to is for the policy dead-letter, not %s", e.Policy)
	}
	return e
}

func (d *reader) input(n *yaml.Node) Input {
	in := Input{At: at(n)}
	d.mapping(n, "an input",
		key{"name", d.str(&in.Name, "name")},
		key{"topic", d.expr(&in.Topic, "topic")},
		key{"subjects", d.strs(&in.Subjects, "subjects")},
		key{"from", d.from(&in.From)},
		key{"codec", d.codec(&in.Codec)},
		key{"where", d.expr(&in.Where, "where")},
		key{"time", func(n *yaml.Node) {
			for _, global := range []string{"disorder", "idle_after", "max_future"} {
				if has(n, global) {
					d.problem(at(n), "an input's time has event and unit; %s is said for all inputs, under the operator's time", global)
					return
				}
			}
			d.mapping(n, "an input's time",
				key{"event", d.expr(&in.Event, "event")},
				key{"stored", d.boolean(&in.Stored, "stored")},
				key{"unit", d.choice(&in.Unit, "unit", "s", "ms", "us", "ns")})
			if in.Stored && in.Event.Set() {
				d.problem(at(n), "an input's time is event, or when a message was stored: not both")
			}
		}},
		key{"table", d.boolean(&in.Table, "table")},
		key{"key", d.keyBy(&in.Key, "key")},
		key{"delete", d.expr(&in.Delete, "delete")},
		key{"on_error", func(n *yaml.Node) { in.OnError = d.errors(n, "on_error") }},
	)
	switch {
	case n.Kind == yaml.MappingNode && !has(n, "topic"):
		d.problem(at(n), "an input needs a topic")
	case in.Table && len(in.Key) == 0:
		d.problem(at(n), "an input that is a table needs a key")
	case !in.Table && (len(in.Key) > 0 || in.Delete.Set()):
		d.problem(at(n), "key and delete are for an input with table: true; for another use a key step")
	}
	return in
}

func (d *reader) from(to *From) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			var word string
			d.choice(&word, "from", "first", "new")(n)
			to.New = word == "new"
			return
		}
		d.mapping(n, "from",
			key{"sequence", func(n *yaml.Node) {
				if n.Decode(&to.Sequence) != nil || to.Sequence == 0 {
					d.problem(at(n), "sequence is a number from 1, not %s", kindOf(n))
				}
			}},
			key{"time", func(n *yaml.Node) {
				var err error
				if to.Time, err = time.Parse(time.RFC3339Nano, n.Value); err != nil {
					d.problem(at(n), "time is like 2026-01-31T08:00:00Z, not %s", kindOf(n))
				}
			}})
	}
}

func (d *reader) codec(to *Codec) func(n *yaml.Node) {
	return func(n *yaml.Node) {
		to.At = at(n)
		if n.Kind != yaml.MappingNode {
			switch n.Value {
			case "avro":
				d.problem(at(n), "the codec avro needs its schema: {avro: {type: record, …}}")
			case "protobuf":
				d.problem(at(n), "the codec protobuf needs its schema: {protobuf: 'syntax = …', message: NAME}")
			case "advertised":
				d.problem(at(n), "a codec is given with its schema, so that the operator means the same whatever is advertised: pubsub discover shows the advertised one")
			default:
				d.choice(&to.Kind, "codec", "json", "text", "bytes", "avro", "protobuf")(n)
			}
			return
		}
		if has(n, "avro") || has(n, "protobuf") {
			src, err := schema.ReadCodec(d.data(n))
			if err != nil {
				d.problem(at(n), "codec: %v", err)
			}
			to.Kind, to.Schema = string(src.Format), src
			return
		}
		to.Kind = "json"
		d.mapping(n, "codec",
			key{"json", func(n *yaml.Node) {
				d.mapping(n, "json", key{"numbers", func(n *yaml.Node) {
					var word string
					d.choice(&word, "numbers", "decimal", "double")(n)
					to.Decimals = word == "decimal"
				}})
			}})
	}
}

func (d *reader) output(n *yaml.Node) Output {
	o := Output{At: at(n)}
	d.mapping(n, "an output",
		key{"topic", d.expr(&o.Topic, "topic")},
		key{"live", d.expr(&o.Live, "live")},
		key{"from", d.expr(&o.From, "from")},
		key{"subject", d.expr(&o.Subject, "subject")},
		key{"key", d.expr(&o.Key, "key")},
		key{"headers", d.fields(&o.Headers, "headers")},
		key{"codec", d.codec(&o.Codec)},
		key{"create", func(n *yaml.Node) {
			if n.Kind != yaml.MappingNode {
				d.problem(at(n), "create is a mapping like {replicas: 3}, not %s", kindOf(n))
				return
			}
			o.Create = d.data(n)
		}},
		key{"advertise", func(n *yaml.Node) { o.Advertise = d.data(n) }},
		key{"on_error", func(n *yaml.Node) { o.OnError = d.errors(n, "on_error") }},
	)
	switch {
	case n.Kind != yaml.MappingNode:
	case o.Topic.Set() == o.Live.Set():
		d.problem(at(n), "an output has a topic, or a live subject")
	case o.Live.Set() && (o.Subject.Set() || !o.Create.IsNull()):
		d.problem(at(n), "a live output has no subject besides, and nothing to create")
	}
	return o
}

func (d *reader) test(n *yaml.Node) Test {
	t := Test{At: at(n)}
	d.mapping(n, "a test",
		key{"name", d.str(&t.Name, "name")},
		key{"clock", func(n *yaml.Node) {
			var err error
			if t.Clock, err = time.Parse(time.RFC3339Nano, n.Value); err != nil {
				d.problem(at(n), "clock is like 2026-01-31T08:00:00Z, not %s", kindOf(n))
			}
		}},
		key{"input", d.list("input", func(n *yaml.Node) { t.Input = append(t.Input, d.testRecord(n)) })},
		key{"expect", func(n *yaml.Node) {
			if n.Kind != yaml.MappingNode {
				d.problem(at(n), "expect is a mapping of outputs to lists of records, not %s", kindOf(n))
				return
			}
			for i := 0; i+1 < len(n.Content); i += 2 {
				e := Expected{Output: n.Content[i].Value, At: at(n.Content[i])}
				d.list("what is expected", func(n *yaml.Node) { e.Records = append(e.Records, d.data(n)) })(n.Content[i+1])
				t.Expect = append(t.Expect, e)
			}
		}})
	return t
}

// testRecord reads {input: payload}, with subject and after where they matter.
func (d *reader) testRecord(n *yaml.Node) TestRecord {
	r := TestRecord{At: at(n)}
	if n.Kind != yaml.MappingNode {
		d.problem(at(n), "a record of a test is {input: payload}, not %s", kindOf(n))
		return r
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Value == "subject":
			d.str(&r.Subject, "subject")(v)
		case k.Value == "after":
			d.duration(&r.Pass, "after", 0)(v)
		case r.Input != "":
			d.problem(at(k), "a record is of one input: %s and %s", r.Input, k.Value)
		default:
			r.Input, r.Payload = k.Value, d.data(v)
		}
	}
	return r
}
