package expr

import (
	"bytes"
	"testing"

	"github.com/heraldmq/herald/topics/value"
)

type payload struct{ v value.Value }

func (p payload) Payload() (value.Value, error) { return p.v, nil }
func (payload) Subject() string                 { return "" }
func (payload) Header() []byte                  { return nil }
func (payload) Key() value.Value                { return value.Value{} }
func (payload) Time() int64                     { return 0 }
func (payload) Sequence() uint64                { return 0 }
func (payload) Now() int64                      { return 0 }

// What is evaluated quickly gives what CEL gives, or nothing.
func TestQuickIsCEL(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"a", "this", "a.b", "!a"}
	for _, op := range []string{"==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&&", "||"} {
		texts = append(texts, "a "+op+" b", "a "+op+" 3", "2.5 "+op+" b", "a "+op+` "x"`, "(a "+op+" b) == true && b > 1", "a "+op+" true")
	}
	texts = append(texts, "a == b ? a : b", "a ? b : 3", "a > 1 ? 1 : 0", "[a, b]", "[a, [b], 3]", "[a, a / b]", "a == 1 && b == 2 ? 7 : 8")
	for _, op := range []string{"+", "-", "*", "/", "%"} {
		texts = append(texts, "decimal(a) "+op+" decimal(b)", "decimal(a) "+op+" b", `decimal(a) `+op+` decimal("0.908")`, "a "+op+" decimal(b)")
	}
	values := []string{"1", "-3", "2.5", "0.1", "-1.0", `"x"`, "null", "true", "false", "9223372036854775807", "-9223372036854775808", "9007199254740993", "18446744073709551615", "1e300", "[1]", `{"b":3}`, "0", "3037000500"}
	quickly := 0
	for _, text := range texts {
		p, err := env.Compile(text)
		if err != nil {
			continue // no expression
		}
		if p.quick == nil {
			t.Errorf("%s isn't quick", text)
			continue
		}
		slow := *p
		slow.quick = nil
		for _, a := range values {
			for _, b := range values {
				this, err := value.Parse([]byte(`{"a":`+a+`,"b":`+b+`}`), value.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := p.quick(this); ok {
					quickly++
				}
				got, err1 := p.Eval(payload{this})
				want, err2 := slow.Eval(payload{this})
				if (err1 == nil) != (err2 == nil) || err1 == nil && (!value.Equal(got, want) || got.Kind() == value.Decimal && !bytes.Equal(value.AppendJSON(nil, got), value.AppendJSON(nil, want))) {
					t.Errorf("%s with a = %s, b = %s gives %v, %v; CEL gives %v, %v", text, a, b, got, err1, want, err2)
				}
			}
		}
	}
	if quickly < 1000 {
		t.Errorf("only %d were quick", quickly)
	}
}
