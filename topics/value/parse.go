package value

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cockroachdb/apd/v3"
)

// The bounds of what Parse takes.
const (
	DepthMax  = 128  // lists and objects in each other
	DigitsMax = 1000 // of a number
)

// SyntaxError says where JSON is wrong, and how.
type SyntaxError struct {
	Offset int // of the first byte that is wrong
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: %s", e.Offset+1, e.Reason)
}

// Options say how Parse reads numbers.
type Options struct {
	// Decimals makes a decimal of every number with a fraction or an exponent. Else
	// it is a double that remembers its text.
	Decimals bool
	// Keep has an object remember the text it came as: see Value.Source.
	Keep bool
	// Only has the outermost object read no more than the fields with these names, and
	// Keep; the others are checked, and read once they are asked for, which costs as
	// much as reading all. nil: all are read.
	Only []string
}

// Parse reads one JSON text (RFC 8259) and nothing behind it. A whole number is an
// int where that holds it, else a uint, else a decimal. A field twice in an object,
// half a surrogate pair and bytes that aren't UTF-8 are refused. The error is a
// *SyntaxError. The value doesn't keep b.
func Parse(b []byte, o Options) (Value, error) {
	p := parser{b: b, s: string(b), o: o}
	v, err := p.outermost()
	if err == nil {
		if p.space(); p.i < len(b) {
			err = p.fail("something follows the value")
		}
	}
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

type parser struct {
	b []byte
	s string // a copy of b, of which names, strings and numbers' texts are parts
	i int
	o Options
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Offset: p.i, Reason: fmt.Sprintf(format, args...)}
}

func (p *parser) space() {
	for p.i < len(p.b) && (p.b[p.i] == ' ' || p.b[p.i] == '\n' || p.b[p.i] == '\t' || p.b[p.i] == '\r') {
		p.i++
	}
}

func (p *parser) value(depth int) (Value, error) {
	p.space()
	if p.i >= len(p.b) {
		return Value{}, p.fail("it ends where a value should be")
	}
	if depth > DepthMax {
		return Value{}, p.fail("more than %d levels", DepthMax)
	}
	switch c := p.b[p.i]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.list(depth)
	case c == '"':
		s, err := p.text()
		return OfString(s), err
	case c == 't':
		return OfBool(true), p.word("true")
	case c == 'f':
		return OfBool(false), p.word("false")
	case c == 'n':
		return Value{}, p.word("null")
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	return Value{}, p.fail("%q begins no value", rune(p.b[p.i]))
}

func (p *parser) word(w string) error {
	if len(p.b)-p.i < len(w) || string(p.b[p.i:p.i+len(w)]) != w {
		return p.fail("expected %s", w)
	}
	p.i += len(w)
	return nil
}

func (p *parser) list(depth int) (Value, error) {
	p.i++
	items := []Value{}
	for {
		p.space()
		if p.i < len(p.b) && p.b[p.i] == ']' && len(items) == 0 {
			p.i++
			return OfList(items), nil
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		items = append(items, v)
		more, err := p.more(']')
		if err != nil {
			return Value{}, err
		}
		if !more {
			return OfList(items), nil
		}
	}
}

// more takes a comma (true) or the end (false).
func (p *parser) more(end byte) (bool, error) {
	p.space()
	if p.i < len(p.b) {
		switch p.b[p.i] {
		case ',':
			p.i++
			return true, nil
		case end:
			p.i++
			return false, nil
		}
	}
	return false, p.fail("expected a comma or %q", rune(end))
}

// manyFields is from how many fields on an index is worth its making.
const manyFields = 16

// names are those that an object has had.
type names struct {
	list []string
	seen map[string]bool // of many
}

// add takes one more, and tells whether it is new.
func (n *names) add(name string) bool {
	if n.seen[name] || n.seen == nil && slices.Contains(n.list, name) {
		return false
	}
	n.list = append(n.list, name)
	if n.seen != nil {
		n.seen[name] = true
	} else if len(n.list) == manyFields {
		n.seen = make(map[string]bool, 2*manyFields)
		for _, one := range n.list {
			n.seen[one] = true
		}
	}
	return true
}

// name reads the name of a field and the colon behind it.
func (p *parser) name(known *names) (string, error) {
	if p.i >= len(p.b) || p.b[p.i] != '"' {
		return "", p.fail("expected the name of a field")
	}
	at := p.i
	name, err := p.text()
	if err != nil {
		return "", err
	}
	if !known.add(name) {
		p.i = at
		return "", p.fail("field %q is there twice", name)
	}
	p.space()
	if p.i >= len(p.b) || p.b[p.i] != ':' {
		return "", p.fail("expected a colon")
	}
	p.i++
	return name, nil
}

func (p *parser) object(depth int) (Value, error) {
	p.i++
	known := names{list: make([]string, 0, 8)}
	values := make([]Value, 0, 8)
	for {
		p.space()
		if p.i < len(p.b) && p.b[p.i] == '}' && len(values) == 0 {
			p.i++
			return Value{kind: Object, ref: &fields{}}, nil
		}
		if _, err := p.name(&known); err != nil {
			return Value{}, err
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		values = append(values, v)
		more, err := p.more('}')
		if err != nil {
			return Value{}, err
		}
		if !more {
			return Value{kind: Object, ref: &fields{names: known.list, values: values}}, nil
		}
	}
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (p *parser) number() (Value, error) {
	start := p.i
	if p.b[p.i] == '-' {
		p.i++
	}
	whole := p.digits()
	if whole == 0 {
		return Value{}, p.fail("expected a digit")
	}
	if first := p.i - whole; whole > 1 && p.b[first] == '0' {
		p.i = first
		return Value{}, p.fail("a number must not begin with a zero")
	}
	exact := true
	if p.i < len(p.b) && p.b[p.i] == '.' {
		exact = false
		p.i++
		if p.digits() == 0 {
			return Value{}, p.fail("expected a digit behind the point")
		}
	}
	if p.i < len(p.b) && p.b[p.i]|0x20 == 'e' {
		exact = false
		p.i++
		if p.i < len(p.b) && (p.b[p.i] == '+' || p.b[p.i] == '-') {
			p.i++
		}
		if n := p.digits(); n == 0 || n > 6 {
			return Value{}, p.fail("expected an exponent of one to six digits")
		}
	}
	text := p.b[start:p.i]
	if len(text) > DigitsMax {
		p.i = start
		return Value{}, p.fail("a number of more than %d digits", DigitsMax)
	}
	if exact {
		if v, ok := whole64(text); ok {
			return v, nil
		}
	}
	s := p.s[start:p.i]
	if exact || p.o.Decimals {
		d, _, err := apd.NewFromString(s)
		if err != nil {
			return Value{}, p.fail("%q is no decimal: %v", s, err)
		}
		return Value{kind: Decimal, ref: d, str: s}, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && (math.IsInf(f, 0) || !errors.Is(err, strconv.ErrRange)) {
		p.i = start
		return Value{}, p.fail("%s is beyond what a double holds", s)
	}
	return Value{kind: Double, num: math.Float64bits(f), str: s}, nil
}

func (p *parser) digits() int {
	start := p.i
	for p.i < len(p.b) && p.b[p.i] >= '0' && p.b[p.i] <= '9' {
		p.i++
	}
	return p.i - start
}

// whole64 reads a whole number that 64 bits hold.
func whole64(text []byte) (Value, bool) {
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) > 20 {
		return Value{}, false
	}
	n := uint64(0)
	for _, c := range text {
		d := uint64(c - '0')
		if n > (math.MaxUint64-d)/10 {
			return Value{}, false
		}
		n = n*10 + d
	}
	switch {
	case !negative:
		return OfUint(n), true
	case n <= 1<<63:
		return OfInt(int64(-n)), true
	}
	return Value{}, false
}
