package topics

import (
	"slices"
	"testing"
)

func TestFilterKeepsOnlyWhatNoOtherCovers(t *testing.T) {
	f := NewFilter([]string{"b.c", "a.*", "a.x", "b.c"})
	if got, want := f.Patterns(), []string{"a.*", "b.c"}; !slices.Equal(got, want) {
		t.Fatalf("patterns %q, want %q", got, want)
	}
	for s, want := range map[string]bool{"a.x": true, "b.c": true, "b.d": false, "a.x.y": false} {
		if f.Match(s) != want {
			t.Errorf("Match(%q) = %t", s, !want)
		}
	}
	if NewFilter(nil) != nil || NewFilter([]string{"a", ">"}) != nil {
		t.Error("a filter that lets everything through must be nil")
	}
	if !NewFilter(nil).Match("x") {
		t.Error("the nil filter refused a subject")
	}
	if s, ok := NewFilter([]string{"a.b"}).Literal(); !ok || s != "a.b" {
		t.Errorf("Literal() = %q, %t", s, ok)
	}
}
