package expr_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/topics/expr"
	"github.com/heraldmq/herald/topics/value"
)

// message is an expr.Message made of texts.
type message struct {
	payload, subject, header string
	key                      value.Value
	time, now                int64
	seq                      uint64
}

func (m message) Payload() (value.Value, error) {
	return value.Parse([]byte(m.payload), value.Options{})
}
func (m message) Subject() string  { return m.subject }
func (m message) Header() []byte   { return []byte(m.header) }
func (m message) Key() value.Value { return m.key }
func (m message) Time() int64      { return m.time }
func (m message) Now() int64       { return m.now }
func (m message) Sequence() uint64 { return m.seq }

func env(t testing.TB) *expr.Env {
	t.Helper()
	e, err := expr.NewEnv(expr.Options{Clock: true})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var bid = message{
	payload: `{"auction":1107,"price":4309000,"big":18446744073709551615,"huge":18446744073709551616,"id":9007199254740993,"rate":0.25,"channel":"Google","none":null,"tags":["a","b"],"seller":{"id":7,"name":"x"},"max":9223372036854775807}`,
	subject: "bids.eu.new", header: "NATS/1.0\r\nRegion: eu\r\nTrace: 1\r\nTrace: 2\r\n\r\n", key: value.OfInt(1107),
	time: 1_700_000_000_000_000_000, now: 1_700_000_001_000_000_000, seq: 42,
}

func TestResults(t *testing.T) {
	e := env(t)
	for text, want := range map[string]string{
		`auction % 123 == 0`:                      `true`,
		`auction`:                                 `1107`,
		`this.auction + 1`:                        `1108`,
		`big > 9223372036854775807`:               `true`,
		`id == 9007199254740993`:                  `true`,
		`id == 9007199254740992`:                  `false`,
		`huge > big`:                              `true`,
		`huge == decimal("18446744073709551616")`: `true`,
		`huge - decimal("18446744073709551616")`:  `0`,
		`decimal(price) * decimal("0.908")`:       `3912572.000`,
		`decimal("0.1") + decimal("0.2")`:         `0.3`,
		`decimal(price) * 2`:                      `8618000`,
		`round(decimal("2.345"), 2)`:              `2.34`,
		`round(decimal("2.355"), 2)`:              `2.36`,
		`decimal("1") / decimal("3")`:             `0.3333333333333333333333333333333333`,
		`-decimal("1.50")`:                        `-1.50`,
		`decimal("2") > 1.5`:                      `true`,
		`decimal("1.50") < 2`:                     `true`,
		`string(decimal("1.50"))`:                 `"1.50"`,
		`int(decimal("12"))`:                      `12`,
		`rate`:                                    `0.25`,
		`rate * 4.0`:                              `1`,
		`double(price) * rate`:                    `1077250`,
		`rate < 1`:                                `true`,
		`has(price)`:                              `true`,
		`has(nothing)`:                            `false`,
		`has(seller.id) && !has(seller.age)`:      `true`,
		`has(this.none)`:                          `true`,
		`none == null`:                            `true`,
		`this.?nothing.orValue(5)`:                `5`,
		`this.?none.orValue(5)`:                   `null`,
		`seller.name + "y"`:                       `"xy"`,
		`tags.exists(t, t == "b")`:                `true`,
		`tags.map(t, t + channel)`:                `["aGoogle","bGoogle"]`,
		`tags[1]`:                                 `"b"`,
		`"a" in tags`:                             `true`,
		`"seller" in this`:                        `true`,
		`size(this)`:                              `11`,
		`subject`:                                 `"bids.eu.new"`,
		`tokens[1] == "eu"`:                       `true`,
		`header["Region"]`:                        `"eu"`,
		`has(header.Region)`:                      `true`,
		`headers["Trace"]`:                        `["1","2"]`,
		`key`:                                     `1107`,
		`seq`:                                     `42`,
		`now - time`:                              `"1s"`,
		`time.getFullYear()`:                      `2023`,
		`{"b": auction, "a": seller}`:             `{"a":{"id":7,"name":"x"},"b":1107}`,
		`seller == {"name": "x", "id": 7}`:        `true`,
		`price > 100 ? "dear" : "cheap"`:          `"dear"`,
		`nothing == 1 || true`:                    `true`,
		`channel.matches("^Goo")`:                 `true`,
		`channel.lowerAscii()`:                    `"google"`,
		`this`:                                    bid.payload,
		`type(price) == int`:                      `true`,
	} {
		p, err := e.Compile(text)
		if err != nil {
			t.Error(err)
			continue
		}
		v, err := p.Eval(bid)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if v.String() != want {
			t.Errorf("%s gives %s, wanted %s", text, v, want)
		}
	}
}

// What can't be calculated is an error that says why, never a wrong number.
func TestErrorsOfMessages(t *testing.T) {
	e := env(t)
	for text, want := range map[string]string{
		`max + 1`:                     "overflow",
		`price * 0.908`:               "no such overload",
		`price * 908 / 0`:             "zero",
		`nothing > 1`:                 "no such key",
		`none > 1`:                    "no such overload",
		`seller.age == 1`:             "no such key",
		`tags[5]`:                     "index",
		`channel + 1`:                 "no such overload",
		`decimal("x")`:                "no decimal",
		`decimal(price) * rate`:       "convert it with decimal",
		`int(decimal("1.5"))`:         "whole number",
		`decimal("1") / decimal("0")`: "division by zero",
		`header["Nope"]`:              "no such key",
	} {
		p, err := e.Compile(text)
		if err != nil {
			t.Error(err)
			continue
		}
		v, err := p.Eval(bid)
		if !errors.Is(err, expr.ErrEval) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %s and %v, wanted an error with %q", text, v, err, want)
		}
	}
	p, err := e.CompileMatch(`price`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Match(bid); !errors.Is(err, expr.ErrType) {
		t.Errorf("a number as a filter gives %v", err)
	}
	broken := bid
	broken.payload = `{"price":`
	if _, err := p.Match(broken); !errors.Is(err, expr.ErrEval) || !strings.Contains(err.Error(), "invalid JSON") {
		t.Errorf("a payload that is no JSON gives %v", err)
	}
	if p, err = e.CompileMatch(`tokens[1] == "eu" && header["Region"] == "eu"`); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Match(broken); !ok || err != nil || p.UsesPayload() {
		t.Errorf("a filter that doesn't look at the payload gives %v, %v", ok, err)
	}
}

func TestErrorsOfText(t *testing.T) {
	e := env(t)
	for text, want := range map[string]string{
		`price >`:            "1:8:",
		`price ==== 1`:       "1:",
		"a &&\n  b c":        "2:",
		`nope(price)`:        "undeclared reference to 'nope'",
		`"a" + 1`:            "no matching overload",
		`subject > 1`:        "no matching overload",
		`price.matches("(")`: "",
		`has(1)`:             "invalid argument",
		strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200): "recursion",
	} {
		_, err := e.Compile(text)
		var bad *expr.Error
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, wanted an error with %q", text, err, want)
		}
	}
	if _, err := e.CompileMatch(`1 + 1`); err == nil || !strings.Contains(err.Error(), "true or false") {
		t.Errorf("a number as a filter: %v", err)
	}
	if _, err := e.Compile(strings.Repeat("1+", expr.TextMax)); err == nil {
		t.Error("a text without bound is taken")
	}
}

// An expression can't take more work than its bound.
func TestCostIsBounded(t *testing.T) {
	e := env(t)
	m := bid
	m.payload = `{"l":[` + strings.Repeat("1,", 999) + `1]}`
	p, err := e.Compile(`l.exists(a, l.exists(b, l.exists(c, a + b + c == 0)))`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Eval(m); !errors.Is(err, expr.ErrEval) || !strings.Contains(err.Error(), "cost limit") {
		t.Errorf("a billion steps give %v", err)
	}
}

func BenchmarkMatch(b *testing.B) {
	p, err := env(b).CompileMatch(`auction % 123 == 0 && price > 100`)
	if err != nil {
		b.Fatal(err)
	}
	v, _ := bid.Payload()
	m := decoded{bid, v}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Match(&m); err != nil {
			b.Fatal(err)
		}
	}
}

type decoded struct {
	message
	v value.Value
}

func (d *decoded) Payload() (value.Value, error) { return d.v, nil }

func TestWhatIsLookedAtBelowAField(t *testing.T) {
	env, err := expr.NewEnv(expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"left.a + left.b.c": "[a b] false", "this.left.a": "[a] false", "left": "[] true", "this.left": "[] true", "this": "[] true", "right.a": "[] false",
		"has(left.a) ? left.b : 1": "[a b] false", "left.?a.orValue(1)": "[] true", "left == right": "[] true", `[{"a": 1}].map(left, left.a)`: "[] false",
		"[left.a].exists(x, x == left.b)": "[a b] false", `left["a"]`: "[] true", "size(left.list) + right.n": "[list] false",
	} {
		p, err := env.Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		names, whole := p.Under("left")
		if whole {
			names = nil
		}
		slices.Sort(names)
		if got := fmt.Sprint(names, " ", whole); got != want {
			t.Errorf("%s looks at %s, want %s", text, got, want)
		}
	}
}
