package topics

import (
	"slices"

	"github.com/heraldmq/herald/topics/subject"
)

// Filter is a set of subject patterns, made once and asked often. A nil Filter
// lets every subject through. It is immutable: safe for any number of callers.
type Filter struct {
	patterns []string // sorted, none covered by another
}

// NewFilter returns a filter for patterns; nil when they let everything through.
func NewFilter(patterns []string) *Filter {
	var kept []string
	for i, p := range patterns {
		if p == ">" {
			return nil
		}
		covered := slices.ContainsFunc(patterns[:i], func(o string) bool { return subject.Covers(o, p) }) ||
			slices.ContainsFunc(patterns[i+1:], func(o string) bool { return o != p && subject.Covers(o, p) })
		if !covered {
			kept = append(kept, p)
		}
	}
	if len(kept) == 0 {
		return nil
	}
	slices.Sort(kept)
	return &Filter{patterns: kept}
}

// Match tells whether the filter lets a literal subject through.
func (f *Filter) Match(s string) bool {
	return f == nil || subject.MatchAny(f.patterns, s)
}

// Patterns returns the patterns, sorted; nil for a filter that lets everything
// through. The caller must not change them.
func (f *Filter) Patterns() []string {
	if f == nil {
		return nil
	}
	return f.patterns
}

// Literal returns the subject of a filter that asks for exactly one.
func (f *Filter) Literal() (string, bool) {
	if f == nil || len(f.patterns) != 1 || !subject.IsLiteral(f.patterns[0]) {
		return "", false
	}
	return f.patterns[0], true
}
