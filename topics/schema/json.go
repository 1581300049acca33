package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/cockroachdb/apd/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/heraldmq/herald/topics/value"
)

// jsonSchema is a compiled JSON Schema. The module jsonschema reads and checks the text
// and resolves its references; the nodes here evaluate it, with a bound on the work and
// over values, whose numbers are exact.
type jsonSchema struct {
	root *node
	// tracks: something asks which fields or items others have looked at.
	tracks bool
	doc    value.Value
}

// base is the address of the document, for references inside it.
const base = "herald:///schema.json"

func compileJSON(text string) (*jsonSchema, *SourceError) {
	doc, err := value.Parse([]byte(text), value.Options{})
	if err != nil {
		return nil, &SourceError{Reason: err.Error()}
	}
	n := &counter{}
	plain, bad := n.plain(doc, "")
	if bad != nil {
		return nil, bad
	}
	patterns := &patterns{all: map[string]*pattern{}}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(patterns.compile)
	c.RegisterFormat(&jsonschema.Format{Name: "regex", Validate: patterns.check})
	c.AssertFormat()
	if err := c.AddResource(base, plain); err != nil {
		return nil, jsonError(err)
	}
	s, err := c.Compile(base)
	if err != nil {
		return nil, jsonError(err)
	}
	b := &nodeBuilder{nodes: map[*jsonschema.Schema]*node{}}
	js := &jsonSchema{root: b.node(s), doc: doc}
	if b.bad == nil {
		b.circles(js.root)
	}
	if b.bad != nil {
		return nil, b.bad
	}
	js.tracks = b.tracks
	return js, nil
}

// jsonError says what the module found, in one line.
func jsonError(err error) *SourceError {
	var invalid *jsonschema.SchemaValidationError
	var v *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &v) {
		for len(v.Causes) > 0 {
			v = v.Causes[len(v.Causes)-1]
		}
		at := ""
		for _, step := range slices.Backward(v.InstanceLocation) {
			at = pointer(step, at)
		}
		where, reason, found := strings.Cut(v.Error(), "': ")
		if !found {
			reason = where
		}
		return &SourceError{Where: at, Reason: firstLine(reason)}
	}
	return &SourceError{Reason: firstLine(strings.ReplaceAll(err.Error(), base, ""))}
}

func firstLine(s string) string {
	s = strings.TrimSpace(s)
	if line, rest, ok := strings.Cut(s, "\n"); ok {
		if strings.HasSuffix(line, base+"#'") || strings.Contains(line, "validation failed") {
			return firstLine(strings.TrimPrefix(strings.TrimSpace(rest), "- "))
		}
		return line
	}
	return s
}

// noLoader loads nothing: a reference stays in the document.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, and references may only lead to the document itself", url)
}

// counter turns a document into what the module reads, within bounds.
type counter struct{ parts int }

func (c *counter) plain(v value.Value, at string) (any, *SourceError) {
	switch v.Kind() {
	case value.Null:
		return nil, nil
	case value.Bool:
		return v.Bool(), nil
	case value.String:
		return v.Str(), nil
	case value.List, value.Object:
		if c.parts++; c.parts > NodesMax {
			return nil, &SourceError{Where: at, Reason: fmt.Sprintf("more than %d objects and lists", NodesMax)}
		}
	default:
		// The module makes fractions of numbers: one like 1e-900000 would be huge.
		f, isDouble := v.Double()
		if text := v.String(); isDouble && (f < 1e-300 && f > -1e-300) && strings.Trim(strings.ToLower(text)+"e", "-0.e") != "" && f == 0 || isDouble && f != 0 && f < 1e-300 && f > -1e-300 {
			return nil, &SourceError{Where: at, Reason: fmt.Sprintf("the number %.40s is too close to zero", text)}
		}
		return json.Number(v.String()), nil
	}
	if v.Kind() == value.List {
		list := make([]any, v.Len())
		for i, item := range v.List() {
			one, bad := c.plain(item, fmt.Sprintf("%s/%d", at, i))
			if bad != nil {
				return nil, bad
			}
			list[i] = one
		}
		return list, nil
	}
	object := make(map[string]any, v.Len())
	for i := range v.Len() {
		f := v.Field(i)
		one, bad := c.plain(f.Value, at+pointer(f.Name, ""))
		if bad != nil {
			return nil, bad
		}
		object[f.Name] = one
	}
	return object, nil
}

// pattern is a regular expression, with what it costs to match.
type pattern struct {
	*regexp.Regexp
	instructions int
}

// patterns compiles those of one schema, within bounds.
type patterns struct {
	all   map[string]*pattern
	total int
}

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if known := p.all[text]; known != nil {
		return known, nil
	}
	if len(text) > PatternMax {
		return nil, fmt.Errorf("a regular expression of more than %d bytes", PatternMax)
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w (regular expressions are RE2's: without look-around and back references)", err)
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	n := len(prog.Inst)
	if p.total += n; n > patternInstructionsMax || p.total > patternTotalMax {
		return nil, fmt.Errorf("the regular expression %.40q is too costly", text)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	one := &pattern{re, n}
	p.all[text] = one
	return one, nil
}

// check is the format regex, of the schema's own text and of payloads: the latter only
// parses.
func (p *patterns) check(v any) error {
	s, ok := v.(string)
	if !ok {
		return nil
	}
	if len(s) > PatternMax {
		return fmt.Errorf("a regular expression of more than %d bytes", PatternMax)
	}
	_, err := syntax.Parse(s, syntax.Perl)
	return err
}

// number makes a value of a limit: exact, and of the kind that compares fastest.
func number(r *big.Rat) *value.Value {
	if r == nil {
		return nil
	}
	if r.IsInt() && r.Num().IsInt64() {
		v := value.OfInt(r.Num().Int64())
		return &v
	}
	// The denominator is made of twos and fives: there are no more digits than this.
	d, _, err := apd.NewFromString(r.FloatString(r.Denom().BitLen()))
	if err != nil {
		return nil
	}
	d, _ = new(apd.Decimal).Reduce(d)
	v := value.OfDecimal(d)
	if f, err := d.Float64(); err == nil {
		if short := value.OfDouble(f); value.Equal(short, v) {
			v = short
		}
	}
	return &v
}

func (s *jsonSchema) decode(payload []byte) (value.Value, error) {
	v, err := value.Parse(payload, value.Options{})
	if err != nil {
		return v, notJSON(err)
	}
	return v, nil
}

func notJSON(err error) *Invalid {
	return &Invalid{Keyword: "encoding", Message: err.Error()}
}

func (s *jsonSchema) validate(payload []byte) *Invalid {
	v, err := value.Parse(payload, value.Options{})
	if err != nil {
		return notJSON(err)
	}
	return s.check(v, len(payload))
}

func (s *jsonSchema) check(v value.Value, size int) *Invalid {
	e := evaluation{steps: StepsMax + StepsPerByte*size}
	var seen *evaluated
	if s.tracks {
		seen = newEvaluated(v)
	}
	return e.node(s.root, v, seen)
}

func (s *jsonSchema) encode(dst []byte, v value.Value) ([]byte, error) {
	out := value.AppendJSON(dst, v)
	if bad := s.validate(out[len(dst):]); bad != nil {
		return dst, bad
	}
	return out, nil
}
