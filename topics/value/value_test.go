package value_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/apd/v3"

	"github.com/heraldmq/herald/topics/value"
)

func parse(t testing.TB, text string) value.Value {
	t.Helper()
	v, err := value.Parse([]byte(text), value.Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestParseKinds(t *testing.T) {
	for _, c := range []struct {
		text string
		kind value.Kind
	}{
		{`null`, value.Null},
		{`true`, value.Bool},
		{`9223372036854775807`, value.Int},
		{`-9223372036854775808`, value.Int},
		{`9223372036854775808`, value.Uint},
		{`18446744073709551615`, value.Uint},
		{`18446744073709551616`, value.Decimal},
		{`-9223372036854775809`, value.Decimal},
		{`0.1`, value.Double},
		{`1e3`, value.Double},
		{`1.0`, value.Double},
		{`"é😀\u00e9\ud83d\ude00\n"`, value.String},
		{`[1,[2,[]]]`, value.List},
		{`{"a":{"b":[{}]}}`, value.Object},
	} {
		if v := parse(t, c.text); v.Kind() != c.kind {
			t.Errorf("%s is %s, wanted %s", c.text, v.Kind(), c.kind)
		}
	}
}

// What is passed on keeps every digit, and its form.
func TestPassThrough(t *testing.T) {
	for _, text := range []string{
		`{"b":1,"a":0.10,"c":1e3,"d":123456789012345678901234567890,"e":-0,"f":1.0E+2,"g":0.1000000000000000055511151231257827}`,
		`[9007199254740993,18446744073709551615]`, `"\u0001\\\"/é"`, `{}`, `[]`,
	} {
		want := text
		if text == `{"b":1,"a":0.10,"c":1e3,"d":123456789012345678901234567890,"e":-0,"f":1.0E+2,"g":0.1000000000000000055511151231257827}` {
			want = `{"b":1,"a":0.10,"c":1e3,"d":123456789012345678901234567890,"e":0,"f":1.0E+2,"g":0.1000000000000000055511151231257827}`
		}
		if got := parse(t, text).String(); got != want {
			t.Errorf("%s came out as %s", text, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	deep := bytes.Repeat([]byte("["), value.DepthMax+2)
	for _, text := range []string{
		``, ` `, `{`, `[1,`, `[1 2]`, `{"a"}`, `{"a":1,}`, `{"a":1,"a":2}`, `[1,]`, `01`, `-`, `1.`, `1e`, `.5`, `+1`, `1e1234567`, `1e999`,
		`tru`, `nul`, `"`, `"\x"`, `"\u12"`, `"\ud800"`, `"\ud800\u0041"`, "\"\n\"", "\"\xff\"", `1 2`, string(deep), `NaN`, `'a'`,
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"a":1}`,
	} {
		var syntax *value.SyntaxError
		if _, err := value.Parse([]byte(text), value.Options{}); !errors.As(err, &syntax) {
			t.Errorf("%.60s: got %v, wanted a syntax error", text, err)
		}
	}
}

// Numbers are equal by what they say, and then, and only then, have the same key.
func TestNumbersAcrossKinds(t *testing.T) {
	dec := func(s string) value.Value {
		d, _, err := apd.NewFromString(s)
		if err != nil {
			t.Fatal(err)
		}
		return value.OfDecimal(d)
	}
	all := []value.Value{
		value.OfInt(0), value.OfInt(1), value.OfInt(-1), value.OfInt(math.MaxInt64), value.OfInt(math.MinInt64), value.OfInt(1 << 53), value.OfInt(1<<53 + 1),
		value.OfUint(1 << 63), value.OfUint(math.MaxUint64),
		value.OfDouble(0), value.OfDouble(math.Copysign(0, -1)), value.OfDouble(1), value.OfDouble(0.5), value.OfDouble(0.1), value.OfDouble(1 << 53), value.OfDouble(1 << 63), value.OfDouble(1 << 64), value.OfDouble(1e300), value.OfDouble(-1e300),
		value.OfDouble(math.Inf(1)), value.OfDouble(math.Inf(-1)), value.OfDouble(5e-324),
		dec("0"), dec("1.00"), dec("1e0"), dec("0.5"), dec("0.1"), dec("18446744073709551615"), dec("18446744073709551616"), dec("1e2"), dec("-1"), dec("1e300"), dec("9007199254740993"),
	}
	for _, a := range all {
		for _, b := range all {
			c, ok := value.Compare(a, b)
			if !ok {
				t.Errorf("%s %s and %s %s have no order", a.Kind(), a, b.Kind(), b)
			}
			if d, _ := value.Compare(b, a); d != -c {
				t.Errorf("%s and %s: %d one way, %d the other", a, b, c, d)
			}
			if back, rest, err := value.FromKey(value.AppendKey([]byte{}, a)); err != nil || len(rest) > 0 || !value.Equal(back, a) {
				t.Errorf("the key of %s %s reads as %s: %v", a.Kind(), a, back, err)
			}
			if same := bytes.Equal(value.AppendKey(nil, a), value.AppendKey(nil, b)); same != (c == 0) {
				t.Errorf("%s %s and %s %s: compare says %d, same key %v", a.Kind(), a, b.Kind(), b, c, same)
			}
		}
	}
	if _, ok := value.Compare(value.OfDouble(math.NaN()), value.OfInt(1)); ok {
		t.Error("NaN has an order")
	}
}

func TestKeysSortAndDoNotRunIntoEachOther(t *testing.T) {
	sorted := []value.Value{
		value.OfInt(math.MinInt64), value.OfInt(-1), value.OfInt(0), value.OfInt(7), value.OfInt(math.MaxInt64),
		value.OfDouble(-2.5), value.OfDouble(-0.5), value.OfDouble(0.25), value.OfDouble(1e-3 + 3),
		value.OfString(""), value.OfString("\x00"), value.OfString("\x00a"), value.OfString("a"), value.OfString("a\x00b"), value.OfString("ab"),
	}
	for i := 1; i < len(sorted); i++ {
		a, b := value.AppendKey(nil, sorted[i-1]), value.AppendKey(nil, sorted[i])
		if bytes.Compare(a, b) >= 0 {
			t.Errorf("the key of %s doesn't sort below that of %s", sorted[i-1], sorted[i])
		}
		if bytes.HasPrefix(b, a) {
			t.Errorf("the key of %s begins with that of %s", sorted[i], sorted[i-1])
		}
	}
	a, b := parse(t, `{"x":1,"y":[2,null]}`), parse(t, `{"y":[2.0,null],"x":1.0}`)
	if !value.Equal(a, b) {
		t.Error("the order of fields tells objects apart")
	}
	for _, v := range append(sorted, a, value.OfNanos(-5), value.OfDuration(5), value.OfBytes([]byte{0}), value.OfBool(true), value.Value{}) {
		k := append(value.AppendKey(nil, v), "rest"...)
		if back, rest, err := value.FromKey(k); err != nil || string(rest) != "rest" || !value.Equal(back, v) {
			t.Errorf("the key of %s reads as %s and %q: %v", v, back, rest, err)
		}
		for cut := range len(k) - 4 {
			if _, _, err := value.FromKey(k[:cut]); err == nil {
				t.Errorf("%d bytes of the key of %s are taken", cut, v)
			}
		}
	}
	if value.Equal(a, parse(t, `{"x":1,"y":[2]}`)) {
		t.Error("a shorter list is equal")
	}
}

func TestObjectsShareAndDoNotChange(t *testing.T) {
	a := parse(t, `{"x":1,"y":2}`)
	b, c, d := a.With("z", value.OfInt(3)), a.With("z", value.OfInt(4)), a.With("x", value.OfInt(9)).Without("y")
	for v, want := range map[string]string{a.String(): `{"x":1,"y":2}`, b.String(): `{"x":1,"y":2,"z":3}`, c.String(): `{"x":1,"y":2,"z":4}`, d.String(): `{"x":9}`} {
		if v != want {
			t.Errorf("got %s, wanted %s", v, want)
		}
	}
	if got := value.OfObject(value.Field{Name: "a", Value: value.OfInt(1)}, value.Field{Name: "b"}, value.Field{Name: "a", Value: value.OfInt(2)}).String(); got != `{"a":2,"b":null}` {
		t.Errorf("got %s", got)
	}
}

func TestJSONOfOwnKinds(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 5, time.UTC)
	v := value.OfList([]value.Value{
		value.OfTime(at), value.OfDuration(90 * time.Second), value.OfBytes([]byte{0, 255}),
		value.OfDouble(1e21), value.OfDouble(1e20), value.OfDouble(0.000001), value.OfDouble(1e-7), value.OfDouble(math.NaN()), value.OfString("\x01\"\xff"),
	})
	want := `["2026-11-30T12:00:00.000000005Z","1m30s","AP8=",1e+21,100000000000000000000,0.000001,1e-07,null,"\u0001\"\ufffd"]`
	if got := v.String(); got != want {
		t.Errorf("got %s\nwanted %s", got, want)
	}
}

func TestEncodingIsLossless(t *testing.T) {
	v := value.OfList([]value.Value{
		parse(t, `{"b":0.10,"a":[null,true,18446744073709551615,-5,123456789012345678901234567890,"x"],"c":{}}`),
		value.OfNanos(5), value.OfDuration(-7), value.OfBytes([]byte{0, 1}), value.OfDouble(math.Inf(1)),
	})
	b := value.Append(nil, v)
	got, err := value.Load(b)
	if err != nil || got.String() != v.String() || got.List()[1].Kind() != value.Time || got.List()[3].Kind() != value.Bytes {
		t.Errorf("got %s: %v", got, err)
	}
	for cut := range b {
		if _, err := value.Load(b[:cut]); !errors.Is(err, value.ErrBinary) {
			t.Errorf("%d of %d bytes are taken: %v", cut, len(b), err)
		}
	}
	if _, err := value.Load(append(b, 0)); err == nil {
		t.Error("a byte more is taken")
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte{byte(value.List), 1, byte(value.Int), 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := value.Load(b); err == nil {
			if _, err := value.Load(value.Append(nil, v)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzParse holds Parse against the standard library: what one takes the other
// takes (but for what Parse refuses on purpose), and it means the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true]}`, `-0`, `1e5`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, `[[[[]]]]`, ` 1 `, `123456789012345678901`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := value.Parse(b, value.Options{})
		if err != nil {
			return
		}
		var want any
		if !json.Valid(b) {
			t.Fatalf("%q: the standard library says it is not valid", b)
		}
		if json.Unmarshal(b, &want) != nil {
			return // a number beyond a double, which is a decimal here
		}
		out := value.AppendJSON(nil, v)
		var got any
		if err := json.Unmarshal(out, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q came out as %q: %v", b, out, err)
		}
		same, err := value.Load(value.Append(nil, v))
		if err != nil || same.String() != v.String() || !value.Equal(same, v) {
			t.Fatalf("%q, encoded, reads as %s: %v", b, same, err)
		}
		again, err := value.Parse(out, value.Options{})
		if err != nil || !value.Equal(v, again) {
			t.Fatalf("%q, written as %q, reads differently: %v", b, out, err)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"auction":1000,"bidder":2001,"price":4309000,"channel":"Google","url":"https://www.nexmark.com/abc/def/ghi/item.htm?query=1","dateTime":"2026-11-30T00:00:00.000Z","extra":"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghij"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := value.Parse(text, value.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
