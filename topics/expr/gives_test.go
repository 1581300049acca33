package expr

import (
	"testing"

	"github.com/heraldmq/herald/topics/value"
)

// What is known of an expression must hold for whatever it is given.
func TestWhatAnExpressionGivesIsKnownOnlyWhereItIsCertain(t *testing.T) {
	env, err := NewEnv(Options{Clock: true})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]value.Kind{
		"string(v)": value.String, "v > 1": value.Bool, "int(v) + 1": value.Int, "double(v) / 2.0": value.Double, "decimal(v) * decimal(2)": value.Decimal,
		"[1, 2]": value.List, "{'a': 1}": value.Object, "time": value.Time, "now - time": value.Duration, "subject": value.String, "tokens[0]": value.String,
		"v": value.Null, "v + 1": value.Null, "v > 1 ? v : 1": value.Null, "v > 1 ? 1 : v": value.Null, "this.?v.orValue(0)": value.Null, "this.?v": value.Null,
		"v.w": value.Null, "[1, v][1]": value.Null, "[v, 1][0]": value.Null, "{'a': v}.a": value.Null, "{'a': 1, 'b': v}['b']": value.Null, "[1].map(x, v)[0]": value.Null,
		"null": value.Null, "dyn(1)": value.Null, "optional.of(1)": value.Null, "optional.of(1).orValue(v)": value.Null, "optional.ofNonZeroValue(v).orValue(1)": value.Null, "key": value.Null,
	} {
		p, err := env.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		kind, known := p.Gives()
		if known != (want != value.Null) || known && kind != want {
			t.Errorf("%s gives a %s (known %t: %s), want %s", text, kind, known, p.result, want)
		}
	}
}
