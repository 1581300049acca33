package spec

import (
	"fmt"
	"strings"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/schema"
	"github.com/heraldmq/herald/topics/value"
)

// encoder makes messages of records.
type encoder struct {
	subject   *template // nil: the topic's own, which the broker knows
	key       *expr.Program
	headers   []steps.Named
	codec     string
	schema    *schema.Schema // of a codec that has one
	changelog bool
	pass      bool // the header block is passed on: it says why a record is there
}

func (e *encoder) encode(r *stream.Record) (graph.Out, error) {
	var out graph.Out
	v := stream.View{Record: r}
	var err error
	if e.subject != nil {
		if out.Subject, err = e.subject.eval(v); err != nil {
			return out, err
		}
	}
	if e.pass {
		out.Header = r.Header
	} else if out.Header, err = e.block(v); err != nil {
		return out, err
	}
	if r.Op == stream.Delete {
		return out, nil // a tombstone
	}
	switch {
	case e.schema != nil:
		return e.bySchema(out, r)
	case e.codec == "json" && r.Value.Source() != "":
		out.Payload = []byte(r.Value.Source()) // as it came
	case e.codec == "json":
		out.Payload = value.AppendJSON(make([]byte, 0, 128), r.Value)
	case r.Value.Kind() == value.String || r.Value.Kind() == value.Bytes:
		out.Payload = []byte(r.Value.Str())
	case e.codec == "text" && r.Value.Kind() != value.Object && r.Value.Kind() != value.List:
		out.Payload = []byte(plain(r.Value))
	default:
		return out, fmt.Errorf("the codec %s can't write a %s", e.codec, r.Value.Kind())
	}
	return out, nil
}

// bySchema adds the payload. An empty one says that a row is gone, so a record that has
// nothing but defaults can't be one of a row.
func (e *encoder) bySchema(out graph.Out, r *stream.Record) (graph.Out, error) {
	var err error
	if out.Payload, err = e.schema.Append(nil, r.Value); err != nil {
		return out, fmt.Errorf("the record can't be written by the %s schema: %w", e.schema.Format(), err)
	}
	if len(out.Payload) == 0 && (e.changelog || e.key != nil) {
		return out, fmt.Errorf("the record has only defaults, which %s writes as nothing, and an empty payload says that the row is gone", e.schema.Format())
	}
	return out, nil
}

// block makes the header block, nil where there is no header.
func (e *encoder) block(v stream.View) ([]byte, error) {
	if e.key == nil && len(e.headers) == 0 && !e.changelog {
		return nil, nil
	}
	b := []byte("NATS/1.0\r\n")
	if e.key != nil {
		k, err := stream.Eval(e.key, v.Record, v.Clock)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		b = appendHeader(b, "Herald-Key", k)
	}
	if e.changelog {
		op := "upsert"
		if v.Record.Op == stream.Delete {
			op = "delete"
		}
		b = appendHeader(b, "Herald-Op", value.OfString(op))
	}
	for _, h := range e.headers {
		f, err := stream.Eval(h.Expr, v.Record, v.Clock)
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", h.Name, err)
		}
		b = appendHeader(b, h.Name, f)
	}
	return append(b, "\r\n"...), nil
}

// lineEnds can't stand in a header.
var lineEnds = strings.NewReplacer("\r", " ", "\n", " ")

func appendHeader(b []byte, name string, v value.Value) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, lineEnds.Replace(plain(v))...), "\r\n"...)
}
