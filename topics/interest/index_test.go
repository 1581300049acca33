package interest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/heraldmq/herald/topics/subject"
)

func tokens(alphabet []string, max int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, max).Draw(t, "tokens"), ".")
	})
}

var (
	subjects = tokens([]string{"a", "b", "c", ""}, 4).Filter(func(s string) bool { return subject.Valid(s) })
	patterns = tokens([]string{"a", "b", "c", "*", ">"}, 4).Filter(subject.Valid)
)

type entry struct {
	pattern string
	id      int
}

// TestIndexAgainstNaive runs random changes and asks every question of both
// the index and a list.
func TestIndexAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index[int]
		var model []entry
		matching := func(s string) (ids []int) {
			for _, e := range model {
				if subject.Match(e.pattern, s) {
					ids = append(ids, e.id)
				}
			}
			return ids
		}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := patterns.Draw(t, "pattern")
				n++
				if !x.Add(p, n) {
					t.Fatalf("Add(%q) refused", p)
				}
				model = append(model, entry{p, n})
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				if !x.Remove(model[i].pattern, model[i].id) {
					t.Fatalf("Remove(%v) found nothing", model[i])
				}
				model = slices.Delete(model, i, i+1)
			},
			"generation": func(t *rapid.T) {
				s, p := subjects.Draw(t, "subject"), patterns.Draw(t, "pattern")
				before := x.Generation(s)
				n++
				x.Add(p, n)
				model = append(model, entry{p, n})
				if subject.Match(p, s) && x.Generation(s) == before {
					t.Fatalf("generation of %q stayed at a change of %q", s, p)
				}
			},
			"": func(t *rapid.T) {
				s := subjects.Draw(t, "subject")
				want := matching(s)
				got := x.Match(s, nil)
				slices.Sort(want)
				slices.Sort(got)
				if !slices.Equal(want, got) {
					t.Fatalf("Match(%q) = %v, want %v", s, got, want)
				}
				if x.Has(s, nil) != (len(want) > 0) {
					t.Fatalf("Has(%q) disagrees with %v", s, want)
				}
				if x.Len() != len(model) {
					t.Fatalf("Len = %d, want %d", x.Len(), len(model))
				}
				p := patterns.Draw(t, "pattern")
				var over []int
				for _, e := range model {
					if subject.Overlap(e.pattern, p) {
						over = append(over, e.id)
					}
				}
				got = x.Overlapping(p, nil)
				slices.Sort(over)
				slices.Sort(got)
				if !slices.Equal(over, got) || x.Overlaps(p) != (len(over) > 0) {
					t.Fatalf("Overlapping(%q) = %v, want %v", p, got, over)
				}
				if pre, ok := x.MatchPrefix(s, nil); ok {
					for _, tok := range []string{"a", "b", "z"} {
						want := matching(s + "." + tok)
						slices.Sort(want)
						slices.Sort(pre)
						if !slices.Equal(want, pre) {
							t.Fatalf("MatchPrefix(%q) = %v, but %s.%s wants %v", s, pre, s, tok, want)
						}
					}
				}
			},
		})
	})
}

func TestIndexManyValuesAtOnePattern(t *testing.T) {
	var x Index[int]
	for i := range 100 {
		x.Add("a.b", i)
	}
	if x.Add("a.b", 7) {
		t.Fatal("a value was added twice")
	}
	for i := 0; i < 100; i += 2 {
		x.Remove("a.b", i)
	}
	if got := x.Match("a.b", nil); len(got) != 50 || slices.ContainsFunc(got, func(i int) bool { return i%2 == 0 }) {
		t.Fatalf("after removing the even ones: %v", got)
	}
	for i := 1; i < 100; i += 2 {
		x.Remove("a.b", i)
	}
	if !x.root.empty() {
		t.Fatal("nodes are left behind")
	}
}

func TestIndexRefusesInvalidPatterns(t *testing.T) {
	var x Index[int]
	for _, p := range []string{"", ".", "a.", ".a", "a..b", "a.>.b", "a b", "a\r\n"} {
		if x.Add(p, 1) {
			t.Errorf("Add(%q) was accepted", p)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	var x Index[int]
	for i := range 10000 {
		x.Add(fmt.Sprintf("sensors.%d.*", i), i)
	}
	x.Add("sensors.>", -1)
	dst := make([]int, 0, 8)
	for b.Loop() {
		dst = x.Match("sensors.4711.temperature", dst[:0])
	}
}
