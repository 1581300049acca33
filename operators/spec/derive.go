package spec

import (
	"github.com/heraldmq/herald/operators/steps"
	"github.com/heraldmq/herald/topics/value"
)

// What is known of the records that come from a step is derived from what it does, for those
// who want to know how an output looks. It describes and is held against nothing; what isn't
// certain isn't said.

// jsonSchema is a part of a JSON Schema; nil: anything.
type jsonSchema map[string]any

var (
	anyNumber = jsonSchema{"type": []string{"number", "null"}} // null: of nothing, or no number
	anyTime   = jsonSchema{"type": "string", "format": "date-time"}
)

// schemaOf is how values of a kind are written as JSON.
func schemaOf(k value.Kind) jsonSchema {
	switch k {
	case value.Bool:
		return jsonSchema{"type": "boolean"}
	case value.Int, value.Uint:
		return jsonSchema{"type": "integer"}
	case value.Double:
		return anyNumber
	case value.Decimal:
		return jsonSchema{"type": "number"}
	case value.Time:
		return anyTime
	case value.String, value.Bytes, value.Duration:
		return jsonSchema{"type": "string"}
	case value.List:
		return jsonSchema{"type": "array"}
	case value.Object:
		return jsonSchema{"type": "object"}
	}
	return nil
}

// typesOf are the types of fields that expressions give.
func typesOf(fields []steps.Named) map[string]jsonSchema {
	types := map[string]jsonSchema{}
	for _, f := range fields {
		if f.Expr == nil {
			continue // a problem was told
		}
		if k, known := f.Expr.Gives(); known {
			types[f.Name] = schemaOf(k)
		}
	}
	return types
}

// typesOfResults are those of the fields of an aggregation's results.
func typesOfResults(g *steps.Aggregation, window bool) map[string]jsonSchema {
	types := map[string]jsonSchema{}
	if window {
		types["window_start"], types["window_end"] = anyTime, anyTime
	}
	for i := range g.Aggregates {
		a := &g.Aggregates[i]
		switch a.Func {
		case "count", "distinct":
			types[a.Name] = jsonSchema{"type": "integer", "minimum": 0}
		case "sum", "avg", "var", "stddev", "var_sample", "stddev_sample":
			types[a.Name] = anyNumber
		case "collect", "top":
			types[a.Name] = jsonSchema{"type": "array"}
		}
	}
	return types
}

// derived is the schema of an output, like that of an advertisement; nil: nothing is known.
func (c *compiler) derived(o *Output, from *outlet) map[string]any {
	if src := o.Codec.Schema; src.Format != "" {
		d := map[string]any{"format": string(src.Format), "inline": src.Text}
		if src.Message != "" {
			d["message"] = src.Message
		}
		if src.Framing != "" {
			d["framing"] = string(src.Framing)
		}
		return d
	}
	if from == nil || len(from.fields) == 0 || o.Codec.Kind != "json" {
		return nil
	}
	properties := map[string]jsonSchema{}
	for name := range from.fields {
		properties[name] = from.types[name]
		if properties[name] == nil {
			properties[name] = jsonSchema{}
		}
	}
	whole := jsonSchema{"type": "object", "properties": properties}
	if from.whole {
		whole["required"] = sortedNames(from.fields)
	}
	return map[string]any{"format": "json-schema", "inline": whole}
}
