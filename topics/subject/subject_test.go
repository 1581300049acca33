package subject

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValid(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "a.b": true, "a.*": true, "a.>": true, ">": true, "*": true, "a*.b": true, "ä.ö": true,
		"": false, ".": false, "a.": false, ".a": false, "a..b": false, "a.>.b": false, "a b": false, "a\tb": false, "a\r\nb": false,
	} {
		if got := Valid(s); got != want {
			t.Errorf("Valid(%q) = %t", s, got)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.*", "a.b", true}, {"a.*", "a", false}, {"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true}, {"a.>", "a", false}, {">", "a.b", true}, {"*.b", "a.b", true}, {"*.b", "a.c", false},
	} {
		if got := Match(c.pattern, c.subject); got != c.want {
			t.Errorf("Match(%q, %q) = %t", c.pattern, c.subject, got)
		}
	}
}

// Over a small alphabet every literal subject can be listed, so that Covers and
// Overlap can be held against their definitions.
func TestCoversAndOverlapByDefinition(t *testing.T) {
	var all []string
	var grow func(prefix []string)
	grow = func(prefix []string) {
		if len(prefix) > 0 {
			all = append(all, strings.Join(prefix, "."))
		}
		if len(prefix) == 4 {
			return
		}
		for _, tok := range []string{"a", "b", "c"} { // c stands for any other token
			grow(append(prefix[:len(prefix):len(prefix)], tok))
		}
	}
	grow(nil)
	pattern := rapid.Custom(func(t *rapid.T) string {
		toks := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*"}), 1, 3).Draw(t, "tokens")
		if rapid.Bool().Draw(t, "tail") {
			toks = append(toks, ">")
		}
		return strings.Join(toks, ".")
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := pattern.Draw(t, "a"), pattern.Draw(t, "b")
		covers, overlap := true, false
		for _, s := range all {
			ma, mb := Match(a, s), Match(b, s)
			covers = covers && (ma || !mb)
			overlap = overlap || ma && mb
		}
		if got := Covers(a, b); got != covers {
			t.Fatalf("Covers(%q, %q) = %t", a, b, got)
		}
		if got := Overlap(a, b); got != overlap {
			t.Fatalf("Overlap(%q, %q) = %t", a, b, got)
		}
	})
}
