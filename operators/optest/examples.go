package optest

import (
	"fmt"
	"strings"

	"github.com/heraldmq/herald/operators/graph"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/topics/value"
)

// Outcome is what came of one of a spec's tests.
type Outcome struct {
	Name string
	Err  error  // it could not be run
	Diff string // what differs, line by line; empty: it passed
}

// Passed tells whether the test passed.
func (o *Outcome) Passed() bool { return o.Err == nil && o.Diff == "" }

// Examples runs the tests a spec carries.
func Examples(s *spec.Spec, g *graph.Graph) []Outcome {
	var all []Outcome
	for k := range s.Tests {
		t := &s.Tests[k]
		out := Outcome{Name: t.Name}
		if out.Name == "" {
			out.Name = fmt.Sprintf("test %d", k+1)
		}
		var records []Record
		for _, r := range t.Input {
			rec := Record{Input: r.Input, Subject: r.Subject, Pass: r.Pass}
			if !r.Payload.IsNull() && out.Err == nil {
				if rec.Payload, out.Err = Payload(g, r.Input, value.AppendJSON(nil, r.Payload)); out.Err != nil {
					out.Err = fmt.Errorf("record %d is not one of %s: %w", len(records)+1, r.Input, out.Err)
				}
			}
			records = append(records, rec)
		}
		if out.Err != nil {
			all = append(all, out)
			continue
		}
		result, err := Run(g, Options{Clock: t.Clock}, records...)
		if err != nil {
			out.Err = err
			all = append(all, out)
			continue
		}
		for _, e := range t.Expect {
			if !known(g, e.Output) {
				out.Err = fmt.Errorf("%s is no output of operator %s", e.Output, g.Name)
				break
			}
			if d := Diff(e.Records, result.Of(e.Output)); d != "" {
				out.Diff += e.Output + ":\n" + d
			}
		}
		all = append(all, out)
	}
	return all
}

func known(g *graph.Graph, sink string) bool {
	for i := range g.Sinks {
		if g.Sinks[i].Name == sink {
			return true
		}
	}
	return false
}

// Diff compares messages with what is expected, in order; "" when they are the same.
// Numbers are the same when they say the same, objects whatever the order of their
// fields. A tombstone is null. Lines begin with - where something is missing, + where
// something is too much.
func Diff(want []value.Value, got []Message) string {
	have := make([]value.Value, len(got))
	for i := range got {
		have[i] = got[i].Value()
	}
	// common[i][j] is how long the longest common sequence of want[i:] and have[j:] is.
	common := make([][]int32, len(want)+1)
	for i := range common {
		common[i] = make([]int32, len(have)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(have) - 1; j >= 0; j-- {
			if value.Equal(want[i], have[j]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var b strings.Builder
	differs := false
	i, j := 0, 0
	for i < len(want) || j < len(have) {
		switch {
		case i < len(want) && j < len(have) && value.Equal(want[i], have[j]):
			fmt.Fprintf(&b, "  %s\n", have[j])
			i, j = i+1, j+1
		case j == len(have) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&b, "- %s\n", want[i])
			i, differs = i+1, true
		default:
			fmt.Fprintf(&b, "+ %s\n", have[j])
			j, differs = j+1, true
		}
	}
	if !differs {
		return ""
	}
	return b.String()
}
