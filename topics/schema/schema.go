package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/heraldmq/herald/topics/value"
)

// Format is a language of schemas, as advertisements name it.
type Format string

// The formats.
const (
	JSONSchema Format = "json-schema" // drafts 4 to 2020-12, by $schema; 2020-12 without
	Avro       Format = "avro"        // 1.11, as JSON
	Protobuf   Format = "protobuf"    // a .proto text, or a FileDescriptorSet in base64
)

// The bounds of what Compile takes.
const (
	TextMax    = 256 << 10 // bytes of a schema
	NodesMax   = 5000      // its objects and lists, or types, fields and symbols
	PatternMax = 1024      // bytes of one regular expression

	patternInstructionsMax = 2000  // of one compiled regular expression
	patternTotalMax        = 50000 // of all of a schema
)

// StepsMax is how much work one validation may be: about one step for each keyword that
// is applied, more for regular expressions over long strings. A payload gets
// StepsPerByte more for each of its bytes.
const (
	StepsMax     = 1 << 18
	StepsPerByte = 4
)

// Source is a schema as somebody wrote it.
type Source struct {
	Format Format
	Text   string
	// Message is the full name of the message that payloads are, of Protobuf only. It
	// may be left out where the file has just one message outside of others.
	Message string
	// Framing says what stands around payloads, of Avro and Protobuf.
	Framing Framing
	// ID is the schema's in a registry, with the framing Confluent; "" where it has none.
	ID string
	// Writers are the Avro schemas that payloads may have been written with, beside this one,
	// which they are resolved to: a JSON list of schemas, or with the framing Confluent an
	// object of schemas by their id. "" is none.
	Writers string
}

// Framing says how payloads begin.
type Framing string

// The framings. "" reads a payload with or without the mark, and writes it.
const (
	SingleObject Framing = "single-object" // C3 01 and the schema's fingerprint (Avro's single object encoding)
	Raw          Framing = "raw"           // nothing but the value
	Confluent    Framing = "confluent"     // 0, the id of a schema in a registry in four bytes, of Protobuf also which message it is
)

// Digest returns what tells sources apart: a SHA-256 in hexadecimal over all of it.
func (s Source) Digest() string {
	h := sha256.New()
	parts := []string{string(s.Format), s.Message, string(s.Framing), s.Text}
	if s.ID != "" || s.Writers != "" {
		parts = append(parts, s.ID, s.Writers)
	}
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// SourceError says why a text is no schema, or one that Herald refuses.
type SourceError struct {
	Format Format
	Where  string // a JSON pointer, or line:column; "" where that isn't known
	Reason string
}

func (e *SourceError) Error() string {
	if e.Where == "" {
		return fmt.Sprintf("the %s schema is not valid: %s", e.Format, e.Reason)
	}
	return fmt.Sprintf("the %s schema is not valid: at %s: %s", e.Format, e.Where, e.Reason)
}

// Invalid says why a payload doesn't conform to a schema, or can't be read by it. It is
// the first thing that was found; the same payload gives the same.
type Invalid struct {
	// Pointer is the JSON pointer to the value that is wrong; "" is the payload itself.
	Pointer string `json:"pointer"`
	// Keyword is the rule that is broken: JSON Schema's keyword (type, required, …),
	// "encoding" where the payload isn't what the format reads, "cost" where the check
	// was given up (StepsMax).
	Keyword string `json:"keyword"`
	Message string `json:"message"`
}

func (e *Invalid) Error() string {
	at := e.Pointer
	if at == "" {
		at = "the payload"
	}
	return fmt.Sprintf("%s: %s: %s", at, e.Keyword, e.Message)
}

// codec is what a format does.
type codec interface {
	// validate checks a payload.
	validate(payload []byte) *Invalid
	// decode reads one; what isn't the format's is an *Invalid.
	decode(payload []byte) (value.Value, error)
	// encode appends one; a value that doesn't fit is an *Invalid.
	encode(dst []byte, v value.Value) ([]byte, error)
}

// Schema is a compiled schema. It is immutable: any number of goroutines may use it.
type Schema struct {
	source Source
	digest string
	codec
}

// Compile reads a schema. The error is a *SourceError.
func Compile(src Source) (*Schema, error) {
	if len(src.Text) > TextMax {
		return nil, &SourceError{src.Format, "", fmt.Sprintf("it has %d bytes, at most %d are allowed", len(src.Text), TextMax)}
	}
	if src.Message != "" && src.Format != Protobuf {
		return nil, &SourceError{src.Format, "", "it names a message, which only protobuf has"}
	}
	if why := src.unframed(); why != "" {
		return nil, &SourceError{src.Format, "", why}
	}
	s := &Schema{source: src, digest: src.Digest()}
	var err *SourceError
	switch src.Format {
	case JSONSchema:
		s.codec, err = compileJSON(src.Text)
	case Avro:
		s.codec, err = compileAvro(src)
	case Protobuf:
		s.codec, err = compileProto(src)
	default:
		err = &SourceError{Reason: fmt.Sprintf("there is no format %q: it is json-schema, avro or protobuf", src.Format)}
	}
	if err == nil && src.Framing == Confluent {
		s.codec, err = frame(src, s.codec)
	}
	if err != nil {
		err.Format = src.Format
		return nil, err
	}
	return s, nil
}

// unframed says what is wrong with a source's framing, "" if nothing is.
func (s Source) unframed() string {
	switch {
	case s.Framing == Confluent && s.Format == JSONSchema, s.Framing != "" && s.Framing != Confluent && (s.Format != Avro || s.Framing != SingleObject && s.Framing != Raw):
		return fmt.Sprintf("there is no framing %q: avro has single-object, raw and confluent, protobuf has confluent", s.Framing)
	case s.Framing != Confluent && s.ID != "":
		return "it has an id, which only the framing confluent has"
	case s.Writers != "" && s.Format != Avro:
		return "it has writers, which only avro has: Protobuf and JSON need none"
	case s.Writers != "" && s.Framing == Raw:
		return "it has writers and the framing raw, where nothing tells which of them wrote a payload"
	}
	return ""
}

// Source returns what the schema was compiled from.
func (s *Schema) Source() Source { return s.source }

// Format returns the schema's language.
func (s *Schema) Format() Format { return s.source.Format }

// Digest returns the Digest of the source.
func (s *Schema) Digest() string { return s.digest }

// Validate checks a payload, which is borrowed for the call: JSON against a JSON Schema,
// Avro and Protobuf for whether they can be read. The error is an *Invalid.
func (s *Schema) Validate(payload []byte) error {
	if bad := s.validate(payload); bad != nil {
		return bad
	}
	return nil
}

// Decode reads a payload as filters and operators see it; nothing of the payload's bytes
// is kept. For JSON Schema that is JSON, which is not checked against the schema. The
// error is an *Invalid.
func (s *Schema) Decode(payload []byte) (value.Value, error) { return s.decode(payload) }

// Append appends a value in the format of payloads. For JSON Schema that is JSON, checked
// against the schema. A value that doesn't fit is an *Invalid, and dst is as it was.
func (s *Schema) Append(dst []byte, v value.Value) ([]byte, error) { return s.encode(dst, v) }

// pointer puts a step in front of a JSON pointer.
func pointer(step, rest string) string {
	return "/" + pointerEscapes.Replace(step) + rest
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
