package schema

import "fmt"

// Mode says which readers a new version of a schema must serve.
type Mode string

// The modes, as advertisements name them.
const (
	None     Mode = "none"     // any change is fine
	Backward Mode = "backward" // who has the new schema reads what was written with the old
	Forward  Mode = "forward"  // who has the old schema reads what is written with the new
	Full     Mode = "full"     // both
)

// Problem is one reason why two schemas are not compatible.
type Problem struct {
	Direction Mode   `json:"direction"` // Backward or Forward
	Pointer   string `json:"pointer"`   // into payloads; a part of lists' items is "*"
	Rule      string `json:"rule"`      // the keyword or word for what is broken
	Message   string `json:"message"`
	// Unknown means that it can't be told: the rule is beyond what Compatible decides,
	// and may or may not be broken. Who changes a schema must be refused, or say that
	// it is meant. One that isn't Unknown may still be one that no payload shows, where
	// the writer's schema says more than is compared.
	Unknown bool `json:"unknown,omitempty"`
}

func (p Problem) String() string {
	at, verb := p.Pointer, "breaks"
	if at == "" {
		at = "the payload"
	}
	if p.Unknown {
		verb = "may break"
	}
	return fmt.Sprintf("%s: %s: %s %s compatibility: %s", at, p.Rule, verb, p.Direction, p.Message)
}

// problemsMax is how many problems are told.
const problemsMax = 50

// Compatible tells what speaks against putting a new version in the place of an old one;
// nothing does where it returns nil. It is sound: where it finds nothing, every payload
// that the one schema allows is read by the other, and says the same. An unknown mode and
// another format are problems too.
//
//   - JSON Schema is decided for type, enum, const, required, properties,
//     additionalProperties, items, prefixItems, ranges, multipleOf, lengths, counts,
//     uniqueItems, $ref, allOf and anyOf. Where anything else differs it can't be told.
//     Neither can it where a field is described that the other schema left open: it could
//     have been anything. Schemas that are closed (additionalProperties: false) don't have
//     that problem.
//   - Avro is decided by its rules of resolution; the first problem is told.
//   - Protobuf is decided by numbers, kinds and names of fields.
func Compatible(old, new *Schema, mode Mode) []Problem {
	switch mode {
	case None, "":
		return nil
	case Backward, Forward, Full:
	default:
		return []Problem{{Direction: mode, Rule: "compat", Message: fmt.Sprintf("there is no mode %q: it is none, backward, forward or full", mode), Unknown: true}}
	}
	if old.source == new.source {
		return nil
	}
	var all []Problem
	if mode != Forward {
		all = append(all, reads(new, old, Backward)...)
	}
	if mode != Backward {
		all = append(all, reads(old, new, Forward)...)
	}
	return all[:min(len(all), problemsMax)]
}

// reads tells what keeps a reader with one schema from what a writer with another writes.
func reads(reader, writer *Schema, direction Mode) []Problem {
	r := &relation{direction: direction}
	if reader.Format() != writer.Format() {
		r.add("", "format", "%s became %s or the other way round", reader.Format(), writer.Format())
		return r.problems
	}
	switch read := bare(reader.codec).(type) {
	case *jsonSchema:
		r.json(read, bare(writer.codec).(*jsonSchema))
	case *avroSchema:
		r.avro(read, bare(writer.codec).(*avroSchema))
	case *protoSchema:
		r.proto(read.root, bare(writer.codec).(*protoSchema).root, "", map[[2]*protoMessage]bool{})
	}
	return r.problems
}

// relation collects what is wrong between a reader and a writer.
type relation struct {
	direction Mode
	problems  []Problem
}

func (r *relation) add(at, rule, format string, args ...any) {
	if len(r.problems) < problemsMax {
		r.problems = append(r.problems, Problem{Direction: r.direction, Pointer: at, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
}

func (r *relation) unknown(at, rule, format string, args ...any) {
	if len(r.problems) < problemsMax {
		r.problems = append(r.problems, Problem{Direction: r.direction, Pointer: at, Rule: rule, Message: fmt.Sprintf(format, args...), Unknown: true})
	}
}
