package config

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing wrong with a configuration. Place is "file:line:col", or
// "flag -x" for the command line.
type Fault struct {
	Place string
	Text  string
}

func (f Fault) Error() string {
	if f.Place == "" {
		return f.Text
	}
	return f.Place + ": " + f.Text
}

// Faults is everything wrong with a configuration, in the order of its places.
// Load and ParseFile return it as their error.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, e := range f {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// suggest returns ` (did you mean "x"?)` for the name closest to got, or "".
func suggest(got string, names []string) string {
	best, at := 1+max(1, len(got)/3), ""
	for _, n := range names {
		if d := distance(got, n); d < best {
			best, at = d, n
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", at)
}

// distance is the Damerau-Levenshtein distance (with adjacent swaps).
func distance(a, b string) int {
	var before, row []int
	next := make([]int, len(b)+1)
	for j := range next {
		next[j] = j
	}
	for i := range len(a) {
		before, row = row, slices.Clone(next)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j+1]+1, next[j]+1, row[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
	}
	return next[len(b)]
}
