package operate

import (
	"maps"
	"testing"
)

// What an update says of each step before it does it: a step that keeps its name and does
// something else loses its state, and that is said as of one that is gone.
func TestWhatBecomesOfStateIsSaidOfEachStep(t *testing.T) {
	const was = `operator: o
inputs: [{topic: IN}]
steps:
  - {name: big, filter: v > 2}
  - {name: by, key: k}
  - {name: sums, aggregate: {total: sum(v)}}
outputs: [{topic: OUT, key: k}]
`
	for name, c := range map[string]struct {
		steps string
		want  map[string]string
	}{
		"the same": {
			"  - {name: big, filter: v > 2}\n  - {name: by, key: k}\n  - {name: sums, aggregate: {total: sum(v)}}\n",
			map[string]string{"sums": stepKept},
		},
		"one without state does something else": {
			"  - {name: big, filter: v > 3}\n  - {name: by, key: k}\n  - {name: sums, aggregate: {total: sum(v)}}\n",
			map[string]string{"sums": stepKept},
		},
		"one with state does something else": {
			"  - {name: big, filter: v > 2}\n  - {name: by, key: k}\n  - {name: sums, aggregate: {total: sum(v), n: count()}}\n",
			map[string]string{"sums": stepChanged},
		},
		"one without state is gone": {
			"  - {name: by, key: k}\n  - {name: sums, aggregate: {total: sum(v)}}\n",
			map[string]string{"sums": stepKept},
		},
		"one is called otherwise": {
			"  - {name: big, filter: v > 2}\n  - {name: by, key: k}\n  - {name: totals, aggregate: {total: sum(v)}}\n",
			map[string]string{"sums": stepDropped, "totals": stepNew},
		},
	} {
		before, err := compile("", []byte(was), nil)
		if err != nil {
			t.Fatal(err)
		}
		after, err := compile("", []byte("operator: o\ninputs: [{topic: IN}]\nsteps:\n"+c.steps+"outputs: [{topic: OUT, key: k}]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := fits(before, after); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, wanted %v", name, got, c.want)
		}
	}
}
