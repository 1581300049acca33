package transform

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics/subject"
)

func TestTransformsMapSubjects(t *testing.T) {
	for _, tt := range []struct{ source, destination, subject, want string }{
		{"x.*", "y.$1", "x.a", "y.a"},
		{"x.*.*", "y.{{wildcard(2)}}.{{Wildcard(1)}}", "x.a.b", "y.b.a"},
		{"x.>", "y.>", "x.a.b", "y.a.b"},
		{"", "y.>", "x.a", "y.x.a"},
		{">", "", "x.a", "x.a"},
		{"x.*.>", "$1.z.>", "x.a.b.c", "a.z.b.c"},
		{"x.*", "y.{{split(1,-)}}", "x.a-b--c", "y.a.b.c"},
		{"x.*", "y.{{split(1,-)}}", "x.--", "y._"},
		{"x.*", "y.{{splitFromLeft(1,1)}}", "x.abc", "y.a.bc"},
		{"x.*", "y.{{splitFromLeft(1,9)}}", "x.abc", "y.abc"},
		{"x.*", "y.{{splitFromRight(1,1)}}", "x.abc", "y.ab.c"},
		{"x.*", "y.{{sliceFromLeft(1,2)}}", "x.abcde", "y.ab.cd.e"},
		{"x.*", "y.{{sliceFromRight(1,2)}}", "x.abcde", "y.a.bc.de"},
		{"x.*", "y.{{left(1,2)}}", "x.abcde", "y.ab"},
		{"x.*", "y.{{right(1,2)}}", "x.abcde", "y.de"},
		{"x.*", "y.{{random(5)}}", "x.a", "y.4"},
		{"x.*.*", "{{wildcard(1)}}.{{partition(3,1,2)}}", "x.b.c", "b.0"},
		{"x.*", "y.{{wildcard(1)", "x.a", "y.{{wildcard(1)"},
		{"x.*", "y", "z.a", ""},
		{"x.*", "y", "x.a", "y"},
	} {
		m, err := New(tt.source, tt.destination)
		if err != nil {
			t.Errorf("%s -> %s: %v", tt.source, tt.destination, err)
			continue
		}
		got, ok := m.Apply(tt.subject, func(n int) int { return n - 1 })
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s -> %s of %s: got %q, %t, want %q", tt.source, tt.destination, tt.subject, got, ok, tt.want)
		}
		if ok && !subject.Match(m.Pattern(), got) {
			t.Errorf("%s -> %s: pattern %s doesn't match %s", tt.source, tt.destination, m.Pattern(), got)
		}
	}
}

func TestBadTransformsAreRefusedAsNatsServerDoes(t *testing.T) {
	for _, tt := range []struct{ source, destination, want string }{
		{"x..", "y", "invalid subject x.."},
		{"x.*", "y.{{partition(5,3)}}", "invalid mapping destination: wildcard index out of range in {{partition(5,3)}}: [3]"},
		{"x.*", "y.{{foo(1)}}", "invalid mapping destination: unknown function in {{foo(1)}}"},
		{"x.*", "y.{{wildcard()}}", "invalid mapping destination: not enough arguments passed to the function in {{wildcard()}}"},
		{"x.*", "y.{{wildcard(1,2)}}", "invalid mapping destination: too many arguments passed to the function in {{wildcard(1,2)}}"},
		{"x.*", "y.$2", "invalid mapping destination: wildcard index out of range in $2: [2]"},
		{"x.*", "y.{{wildcard(x)}}", "invalid mapping destination: function argument is invalid or in the wrong format in {{wildcard(x)}}"},
		{"x.*", "y.{{random(0)}}", "invalid mapping destination: function argument is invalid or in the wrong format in {{random(0)}}"},
		{"x.*", "y.>", "invalid subject"},
		{"x.*", "y.*", "invalid subject"},
		{"x.>", "y.z", "invalid subject"},
		{"x.*", "y..z", "invalid mapping destination: invalid transform"},
	} {
		if _, err := New(tt.source, tt.destination); err == nil || err.Error() != tt.want {
			t.Errorf("%s -> %s: got %v, want %s", tt.source, tt.destination, err, tt.want)
		}
	}
}

func TestWhatATransformGivesIsASubject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := rapid.SampledFrom([]string{"a.*.*", "*.*.>", ">", "a.*.>"}).Draw(t, "source")
		destination := rapid.SampledFrom([]string{
			"b.$1.{{split(2,-)}}", "{{sliceFromLeft(1,2)}}.{{right(2,3)}}", "b.>", "{{partition(7,1)}}.$1.>",
			"{{splitFromRight(1,2)}}.x.>",
		}).Draw(t, "destination")
		m, err := New(source, destination)
		if err != nil {
			return
		}
		token := rapid.StringMatching(`[a-c-]{1,6}`)
		s := "a." + token.Draw(t, "t1") + "." + token.Draw(t, "t2")
		got, ok := m.Apply(s, nil)
		if ok && (!subject.ValidLiteral(got) || !subject.Match(m.Pattern(), got)) {
			t.Fatalf("%s -> %s of %s gives %q", source, destination, s, got)
		}
	})
}

func FuzzNew(f *testing.F) {
	f.Add("x.*", "y.{{partition(5,1)}}.$1", "x.a")
	f.Fuzz(func(t *testing.T, source, destination, s string) {
		m, err := New(source, destination)
		if err != nil || !subject.ValidLiteral(s) {
			return
		}
		m.Apply(s, nil)
		m.Pattern()
	})
}
