// Package expr compiles and evaluates expressions over messages, in the Common
// Expression Language (https://cel.dev): content filters and the steps of operators
// are written in it.
//
//	auction % 123 == 0
//	header["Region"] == "eu" && tokens[1] != "test"
//	has(price) && decimal(price) * decimal("0.908") > decimal("100")
//
// A bare name is a field of the payload: price is this.price. What else a name can
// be:
//
//	this      the whole payload
//	subject   the message's subject; tokens its parts, a list from 0
//	header    the first value of each header, a map; headers all values, a map of lists
//	key       the record's key, null without one
//	time      the event's time or, without one, when the message was stored
//	seq       the message's sequence in its topic, 0 when it isn't in one
//	now       the logged clock; only where there is one (Options.Clock)
//
// What is exact and what is an error:
//
//   - A whole number is an int (64 bits), a larger one a uint or a decimal. Overflow is
//     an error and never wraps. An int and a double compare by what they say, but
//     calculate only after double(x) or decimal(x): nothing is rounded in silence.
//   - A decimal is exact under + - *, up to a thousand digits; a quotient has 34 digits,
//     rounded half to even; round(x, n) rounds the same way.
//   - A field that is missing is an error, null is a value that equals only null. Ask with
//     has(x), x != null, or this.?x.orValue(0).
//   - && and || forgive an error on one side when the other decides.
//   - Nothing reads a clock or draws at random: the same message gives the same result on
//     every node, for ever.
//
// A Program is bounded: its text, its depth, and the work of one evaluation, in units
// that don't depend on the machine.
package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/heraldmq/herald/topics/value"
)

// The bounds of an expression.
const (
	TextMax  = 16 << 10 // bytes of an expression
	DepthMax = 100      // of its nesting
	CostMax  = 100_000  // of one evaluation, in CEL's units: about one for each operation or ten bytes looked at
)

// Options say what an environment offers.
type Options struct {
	Clock bool // there is a logged clock: now
}

// Env compiles expressions. It may be used by any number of goroutines.
type Env struct {
	env   *cel.Env
	known map[string]bool // names that are not fields of the payload
}

// Problem is one thing that is wrong with an expression's text.
type Problem struct {
	Line, Column int // from 1
	Message      string
}

// Error is why an expression could not be compiled.
type Error struct {
	Text     string
	Problems []Problem
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the expression %q is wrong", e.Text)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "; %d:%d: %s", p.Line, p.Column, p.Message)
	}
	return b.String()
}

// NewEnv makes an environment.
func NewEnv(o Options) (*Env, error) {
	vars := map[string]*cel.Type{
		"this": cel.DynType, "subject": cel.StringType, "tokens": cel.ListType(cel.StringType),
		"header": cel.MapType(cel.StringType, cel.StringType), "headers": cel.MapType(cel.StringType, cel.ListType(cel.StringType)),
		"key": cel.DynType, "time": cel.TimestampType, "seq": cel.IntType,
	}
	if o.Clock {
		vars["now"] = cel.TimestampType
	}
	e := &Env{known: map[string]bool{}}
	opts := []cel.EnvOption{
		cel.ClearMacros(), cel.Macros(macros()...),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(TextMax), cel.ParserRecursionLimit(DepthMax), cel.ExpressionNestingDepthLimit(DepthMax),
		cel.CustomTypeAdapter(adapter{}),
		ext.Strings(ext.StringsVersion(4)), ext.Math(), ext.Sets(), ext.Encoders(), ext.Lists(ext.ListsVersion(1)),
	}
	opts = append(opts, decimals()...)
	for name, t := range vars {
		opts = append(opts, cel.Variable(name, t))
		e.known[name] = true
	}
	for _, name := range []string{
		"bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type", "optional_type", "decimal", "google", "optional", "math", "sets", "base64", "lists", "strings",
	} {
		e.known[name] = true
	}
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("make the environment of expressions: %w", err)
	}
	e.env = env
	return e, nil
}

// Program is a compiled expression. It may be used by any number of goroutines.
type Program struct {
	text   string
	run    cel.Program
	result *cel.Type
	uses   uses
	quick  quick // nil: CEL evaluates it
}

// uses tells which parts of a message an expression looks at.
type uses struct {
	payload, headers, place, clock bool

	whole  bool     // the payload, not only fields of it
	fields []string // of the payload, each once
	needs  []string // those whose absence is an error

	bare  []string            // fields that are looked at as such
	under map[string][]string // those of which only fields are, and which
}

// Compile compiles an expression. The error is an *Error.
func (e *Env) Compile(text string) (*Program, error) {
	if len(text) > TextMax {
		return nil, &Error{text[:40] + "…", []Problem{{1, 1, fmt.Sprintf("it is longer than %d bytes", TextMax)}}}
	}
	ast, issues := e.env.Parse(text)
	if issues.Err() != nil {
		return nil, problems(text, issues)
	}
	u := e.bindFields(ast.NativeRep())
	if ast, issues = e.env.Check(ast); issues.Err() != nil {
		return nil, problems(text, issues)
	}
	run, err := e.env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(CostMax))
	if err != nil {
		return nil, &Error{text, []Problem{{1, 1, err.Error()}}}
	}
	return &Program{text: text, run: run, result: ast.OutputType(), uses: u, quick: quicken(ast.NativeRep().Expr())}, nil
}

// Gives returns the kind of the values that an expression gives, where that follows from its
// text. Null may come instead of a double that is no number.
func (p *Program) Gives() (kind value.Kind, known bool) {
	switch p.result.Kind() {
	case cel.BoolKind:
		return value.Bool, true
	case cel.IntKind:
		return value.Int, true
	case cel.UintKind:
		return value.Uint, true
	case cel.DoubleKind:
		return value.Double, true
	case cel.StringKind:
		return value.String, true
	case cel.BytesKind:
		return value.Bytes, true
	case cel.TimestampKind:
		return value.Time, true
	case cel.DurationKind:
		return value.Duration, true
	case cel.ListKind:
		return value.List, true
	case cel.MapKind:
		return value.Object, true
	}
	if p.result.TypeName() == decimalType.TypeName() {
		return value.Decimal, true
	}
	return value.Null, false
}

// CompileMatch compiles an expression that must say true or false.
func (e *Env) CompileMatch(text string) (*Program, error) {
	p, err := e.Compile(text)
	if err != nil {
		return nil, err
	}
	if p.result != cel.BoolType && p.result != cel.DynType {
		return nil, &Error{text, []Problem{{1, 1, fmt.Sprintf("it gives %s, where true or false is wanted", p.result)}}}
	}
	return p, nil
}

func problems(text string, issues *cel.Issues) error {
	e := &Error{Text: text}
	for _, i := range issues.Errors() {
		m := i.Message
		if strings.Contains(m, "token recognition error at: '= '") || strings.Contains(m, "token recognition error at: '='") {
			m += "; what is equal is told by =="
		}
		e.Problems = append(e.Problems, Problem{i.Location.Line(), i.Location.Column() + 1, m})
	}
	return e
}

// Text returns the expression.
func (p *Program) Text() string { return p.text }

// UsesPayload tells whether the expression looks into the payload; if not, a payload
// that can't be decoded doesn't matter.
func (p *Program) UsesPayload() bool { return p.uses.payload }

// UsesPlace tells whether the expression asks for the message's place in a topic: its
// time or its sequence.
func (p *Program) UsesPlace() bool { return p.uses.place }

// UsesClock tells whether the expression looks at the logged clock.
func (p *Program) UsesClock() bool { return p.uses.clock }

// Fields returns which fields of the payload the expression looks at, each once; whole
// is true where it looks at the payload as such, so that all may matter.
func (p *Program) Fields() (names []string, whole bool) { return p.uses.fields, p.uses.whole }

// Under returns which fields of a field of the payload the expression looks at; whole is
// true where it looks at that as such.
func (p *Program) Under(name string) (names []string, whole bool) {
	return p.uses.under[name], p.uses.whole || slices.Contains(p.uses.bare, name)
}

// Needs returns the fields of the payload without which the expression is an error,
// unless what is around them forgives it.
func (p *Program) Needs() []string { return p.uses.needs }

// Why an evaluation gave no result. The error's text says what is wrong with the
// message.
var (
	// ErrType: it gave something else than what is wanted.
	ErrType = errors.New("the result is of the wrong type")
	// ErrEval: a field is missing, types don't fit, an overflow, a division by zero,
	// too much work.
	ErrEval = errors.New("the expression can't be evaluated")
)

// Quick evaluates an expression over a payload where that needs nothing else of the
// message and nothing is unusual. Where ok is false Eval or Match says what it gives.
func (p *Program) Quick(this value.Value) (v value.Value, ok bool) {
	if p.quick == nil || !p.uses.payload {
		return v, false
	}
	return p.quick(this)
}

// Eval evaluates the expression over a message.
func (p *Program) Eval(m Message) (value.Value, error) {
	v, ok, this, err := p.evalQuick(m)
	if ok {
		return v, nil
	}
	out, err := p.eval(m, this, err)
	if err != nil {
		return value.Value{}, err
	}
	v, err = toValue(out)
	if err != nil {
		return value.Value{}, fmt.Errorf("%w: %w", ErrType, err)
	}
	return v, nil
}

// Match evaluates an expression of CompileMatch.
func (p *Program) Match(m Message) (bool, error) {
	v, ok, this, err := p.evalQuick(m)
	if ok {
		if v.Kind() != value.Bool {
			return false, fmt.Errorf("%w: %s instead of true or false", ErrType, v.Kind())
		}
		return v.Bool(), nil
	}
	out, err := p.eval(m, this, err)
	if err != nil {
		return false, err
	}
	b, isBool := out.(types.Bool)
	if !isBool {
		return false, fmt.Errorf("%w: %s instead of true or false", ErrType, out.Type().TypeName())
	}
	return bool(b), nil
}

// evalQuick evaluates without CEL, where that gives a result. The payload, once it has
// been asked for, is this, unless that failed.
func (p *Program) evalQuick(m Message) (out value.Value, ok bool, this ref.Val, err error) {
	if p.quick == nil || !p.uses.payload {
		return out, false, nil, nil
	}
	v, err := m.Payload()
	if err != nil {
		return out, false, nil, err
	}
	if out, ok = p.quick(v); !ok {
		this = fromValue(v)
	}
	return out, ok, this, nil
}

// eval evaluates with CEL. this and failed are what came of asking for the payload,
// where that was done.
func (p *Program) eval(m Message, this ref.Val, failed error) (ref.Val, error) {
	a := &activation{m: m, payload: this, failed: failed}
	out, _, err := p.run.Eval(a)
	if a.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEval, a.err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEval, err)
	}
	return out, nil
}
