package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a file, or that its writer should know.
type Problem struct {
	File    string
	At      Pos
	Text    string // what was found, and what was expected
	Warning bool   // it can be deployed all the same
}

func (p Problem) String() string {
	kind := ""
	if p.Warning {
		kind = "warning: "
	}
	if p.At.Line == 0 {
		return fmt.Sprintf("%s: %s%s", p.File, kind, p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s%s", p.File, p.At.Line, p.At.Column, kind, p.Text)
}

// Problems are all that were found, in the order of the file.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].String()
	}
	return strings.Join(lines, "\n")
}

// Errors returns those that aren't warnings.
func (p Problems) Errors() Problems {
	var all Problems
	for _, one := range p {
		if !one.Warning {
			all = append(all, one)
		}
	}
	return all
}

func (p Problems) sort() {
	slices.SortStableFunc(p, func(a, b Problem) int {
		if a.At.Line != b.At.Line {
			return a.At.Line - b.At.Line
		}
		return a.At.Column - b.At.Column
	})
}

// reporter collects problems.
type reporter struct {
	file string
	all  Problems
}

func (r *reporter) problem(at Pos, format string, args ...any) {
	r.all = append(r.all, Problem{File: r.file, At: at, Text: fmt.Sprintf(format, args...)})
}

func (r *reporter) warn(at Pos, format string, args ...any) {
	r.all = append(r.all, Problem{File: r.file, At: at, Text: fmt.Sprintf(format, args...), Warning: true})
}

func (r *reporter) failed() bool { return len(r.all.Errors()) > 0 }

// meant is ` (did you mean "x"?)`, or nothing.
func meant(got string, known []string) string {
	best, least := "", 3
	if len(got) < 4 {
		least = 2
	}
	for _, name := range known {
		if d := distance(strings.ToLower(got), strings.ToLower(name)); d < least && name != got {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// distance counts the letters to change, add, drop or swap.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	rows := [3][]int{make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(x); i++ {
		before2, before, row := rows[(i+1)%3], rows[(i-1)%3], rows[i%3]
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(before[j]+1, row[j-1]+1, before[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before2[j-2]+1)
			}
		}
	}
	return rows[len(x)%3][len(y)]
}

// listed is "a, b or c".
func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
