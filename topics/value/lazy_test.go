package value

import (
	"bytes"
	"strings"
	"testing"
)

var lazyTexts = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":"x","c":[1,{"d":null}],"e":1.50}`, "{\"b\" : \"a longer string, of more than eight bytes\" ,\n\"a\":-7}\n",
	`{"a":"\u0041 and \"more\" of it","b":{"a":1}}`, `{"ä":1,"a":"ünïcödé"}`, `{"a":1,"a":2}`, `{"b":1,"b":2}`, `{"b":{"c":1,"c":2}}`,
	`{"a":1,}`, `{"a" 1}`, `{"b":01}`, `{"b":1e999}`, `{"b":"\x"}`, "{\"b\":\"12345678\x01\"}", "{\"b\":\"12345678\xff\"}", `{"b":"endless`, `{"a":1} x`, `{`,
	`[1,2]`, `7`, `"a"`, `null`, ``, `{"a":12345678901234567890123}`,
	`{"f1":1,"f2":2,"f3":3,"f4":4,"f5":5,"f6":6,"f7":7,"f8":8,"f9":9,"f10":1,"f11":1,"f12":1,"f13":1,"f14":1,"f15":1,"f16":1,"f17":1,"a":2,"f3":9}`,
}

// checkLazy holds reading some fields against reading all of them.
func checkLazy(t *testing.T, text []byte) {
	t.Helper()
	for _, o := range []Options{{}, {Decimals: true}} {
		all, failed := Parse(text, o)
		for _, only := range [][]string{nil, {}, {"a"}, {"b", "missing", "a", "f9", "e"}} {
			o := Options{Decimals: o.Decimals, Keep: true, Only: only}
			some, err := Parse(text, o)
			if (err == nil) != (failed == nil) || err != nil && err.Error() != failed.Error() {
				t.Fatalf("%q with %v: %v instead of %v", text, only, err, failed)
			}
			if err != nil {
				continue
			}
			for _, name := range []string{"a", "b", "c", "missing", "f17"} {
				x, there := some.Get(name)
				y, wanted := all.Get(name)
				if there != wanted || !bytes.Equal(Append(nil, x), Append(nil, y)) {
					t.Fatalf("%q with %v: field %s is %v (%v) instead of %v (%v)", text, only, name, x, there, y, wanted)
				}
			}
			one := OfInt(1)
			for what, pair := range map[string][2]Value{
				"itself": {some, all}, "with a": {some.With("a", one), all.With("a", one)}, "without b": {some.Without("b"), all.Without("b")},
			} {
				if !bytes.Equal(Append(nil, pair[0]), Append(nil, pair[1])) || !bytes.Equal(AppendKey(nil, pair[0]), AppendKey(nil, pair[1])) ||
					pair[0].String() != pair[1].String() || pair[0].Len() != pair[1].Len() {
					t.Fatalf("%q with %v, %s: %v instead of %v", text, only, what, pair[0], pair[1])
				}
			}
			if some.Kind() == Object && some.Source() != string(text) {
				t.Fatalf("%q with %v: the source is %q", text, only, some.Source())
			}
			if s := some.With("a", one).Source(); s != "" {
				t.Fatalf("%q: changed, and still from %q", text, s)
			}
		}
	}
}

func TestSomeFieldsAreThoseOfAll(t *testing.T) {
	for _, text := range lazyTexts {
		checkLazy(t, []byte(text))
	}
	for n := range 40 { // ends and escapes at each place of a word of eight
		for _, c := range []string{`"`, `\n`, "\t", "é", "\x7f"} {
			checkLazy(t, []byte(`{"b":"`+strings.Repeat("x", n)+c+`yyyyyyyyyyy","a":3}`))
		}
	}
}

func FuzzSomeFields(f *testing.F) {
	for _, text := range lazyTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkLazy(t, text) })
}
