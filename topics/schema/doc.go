// Package schema says what payloads look like: it checks them against a schema, reads
// Avro and Protobuf into values and writes them, tells whether a new version of a
// schema fits an old one, proposes a schema for payloads that have none, and writes
// types for programs.
//
//	s, err := schema.Compile(schema.Source{Format: schema.JSONSchema, Text: text})
//	err = s.Validate(payload)   // nil, or an *Invalid: where, which keyword, why
//	v, err := s.Decode(payload) // as filters and operators see it
//
// Everything here is pure: nothing is read from disks or networks, no reference leads
// out of the document, the same bytes give the same result on every node.
//
// A schema may come from someone who means harm, and so may a payload. What they can
// cost is bounded: the text (TextMax), the number of its parts (NodesMax), regular
// expressions (RE2, PatternMax), the levels of a payload (value.DepthMax), and the work
// of one validation (StepsMax), in units that don't depend on the machine.
package schema
