package state

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestNameSetIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s nameSet
		want := map[string]bool{}
		for _, i := range rapid.SliceOf(rapid.IntRange(-20, 20)).Draw(t, "ops") {
			name := strconv.Itoa(max(i, -i))
			if i >= 0 {
				if s.add(name) == want[name] {
					t.Fatalf("add %s: it was there: %t", name, want[name])
				}
				want[name] = true
			} else {
				if s.remove(name) != want[name] {
					t.Fatalf("remove %s: it was there: %t", name, want[name])
				}
				delete(want, name)
			}
			if s.len() != len(want) || s.has(name) != want[name] {
				t.Fatalf("after %s: %d names, want %d", name, s.len(), len(want))
			}
		}
	})
}
