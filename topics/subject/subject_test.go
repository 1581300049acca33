package subject

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestValid(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "a.b": true, "a.*": true, "a.>": true, ">": true, "*": true, "a*.b": true, "ä.ö": true,
		"": false, ".": false, "a.": false, ".a": false, "a..b": false, "a.>.b": false, "a b": false, "a\vb": false, "a\x7f": false, "\x00": false, "a\tb": false, "a\r\nb": false,
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
		{"a", "a", true},
		{"a", "b", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a", false},
		{">", "a.b", true},
		{"*.b", "a.b", true},
		{"*.b", "a.c", false},
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

// naive matches by the definition, token by token.
func naive(pattern, subject []string) bool {
	if len(pattern) == 1 && pattern[0] == ">" {
		return len(subject) > 0
	}
	if len(pattern) == 0 || len(subject) == 0 {
		return len(pattern) == len(subject)
	}
	return (pattern[0] == "*" || pattern[0] == subject[0]) && naive(pattern[1:], subject[1:])
}

// FuzzMatch holds Match, Covers and Overlap against the definition for whatever
// bytes patterns and subjects are made of.
func FuzzMatch(f *testing.F) {
	f.Add("a.*.c", "a.>", "a.b.c")
	f.Add(">", "*", "ä")
	f.Add("a..b", "*.>", ".")
	f.Add("*.*", "x.\x00", "")
	f.Fuzz(func(t *testing.T, a, b, s string) {
		covers, overlap, matchA, matchB := Covers(a, b), Overlap(a, b), Match(a, s), Match(b, s)
		if Overlap(b, a) != overlap {
			t.Fatalf("Overlap(%q, %q) depends on the order", a, b)
		}
		if !Valid(a) || !Valid(b) {
			return // no harm was done
		}
		if covers && !overlap {
			t.Fatalf("%q covers %q without overlap", a, b)
		}
		if Covers(a, a) != true {
			t.Fatalf("%q doesn't cover itself", a)
		}
		if !ValidLiteral(s) {
			return
		}
		for p, got := range map[string]bool{a: matchA, b: matchB} {
			if want := naive(strings.Split(p, "."), strings.Split(s, ".")); got != want {
				t.Fatalf("Match(%q, %q) = %t", p, s, got)
			}
		}
		if matchA && matchB && !overlap {
			t.Fatalf("%q matches %q and %q, which don't overlap", s, a, b)
		}
		if covers && matchB && !matchA {
			t.Fatalf("%q covers %q, and matches %q less", a, b, s)
		}
		if Covers(a, s) != matchA || Overlap(a, s) != matchA {
			t.Fatalf("%q and the literal %q: Match %t, Covers %t, Overlap %t", a, s, matchA, Covers(a, s), Overlap(a, s))
		}
	})
}
