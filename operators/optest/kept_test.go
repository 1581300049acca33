package optest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heraldmq/herald/operators/optest"
)

// What a node keeps at hand between records goes back with what an error undoes.
func TestAnErrorLeavesNothingOfARecord(t *testing.T) {
	for name, last := range map[string]string{
		"running": "aggregate: {n: count(), total: sum(v)}",
		"rows":    "aggregate: {n: count(), total: sum(v)}\n    row: v",
		"windows": "window: {tumble: 1d, emit: changes}\n  - aggregate: {n: count(), total: sum(v)}",
		"top":     "top: {n: 3, by: 'v + 0'}\n  - assert: rank < 9",
	} {
		t.Run(name, func(t *testing.T) {
			_, g := compile(t, "operator: o\nerrors: {policy: skip}\ntime: {event: t, unit: s, disorder: 1d}\ninputs: [{topic: A}]\nsteps:\n  - key: k\n  - "+last+"\noutputs: [{topic: OUT}]")
			var good, all []optest.Record
			for i := range 300 {
				v := fmt.Sprint(i)
				if i%3 == 1 {
					v = fmt.Sprintf("%q", v) // a sum of numbers takes no text
				}
				r := optest.Record{Input: "A", Payload: fmt.Appendf(nil, `{"k":%d,"t":%d,"v":%s}`, i%2, i, v)}
				if all = append(all, r); i%3 != 1 {
					good = append(good, r)
				}
			}
			got, err := optest.Run(g, optest.Options{Cut: func() int { return 7 }}, all...)
			if err != nil {
				t.Fatal(err)
			}
			want, err := optest.Run(g, optest.Options{}, good...)
			if err != nil {
				t.Fatal(err)
			}
			if len(want.Messages) < 100 || len(got.Messages) != len(want.Messages) {
				t.Fatalf("%d messages instead of %d", len(got.Messages), len(want.Messages))
			}
			for i := range want.Messages {
				if g, w := string(got.Messages[i].Payload), string(want.Messages[i].Payload); g != w {
					t.Fatalf("message %d is %s instead of %s", i, g, w)
				}
			}
		})
	}
}

// A key with more records than are kept at hand is joined like any other.
func TestJoinOfAKeyWithVeryManyRecords(t *testing.T) {
	const n = 6000
	for _, kind := range []string{"inner", "outer"} {
		t.Run(kind, func(t *testing.T) {
			_, g := compile(t, "operator: o\ntime: {event: t, unit: ms, disorder: 1h}\ninputs: [{topic: A}, {topic: B}]\nsteps:\n  - from: A\n    join: {with: B, kind: "+kind+
				", on: {left: k, right: k}, within: {before: 1ms, after: 2ms}, as: {l: 'has(left.t) ? left.t : -1', r: 'has(right.t) ? right.t : -1'}}\noutputs: [{topic: OUT}]")
			rng := rand.New(rand.NewPCG(5, 7))
			var records []optest.Record
			var times [2][]int
			for range n {
				for side, input := range []string{"A", "B"} {
					at := rng.IntN(3 * n)
					times[side] = append(times[side], at)
					records = append(records, optest.Record{Input: input, Payload: fmt.Appendf(nil, `{"k":1,"t":%d,"more":"left out"}`, at)})
				}
			}
			var want []string
			byTime := map[int]int{}
			for _, r := range times[1] {
				byTime[r]++
			}
			lefts := map[int]bool{}
			for _, l := range times[0] {
				lefts[l] = true
				found := false
				for r := l - 1; r <= l+2; r++ {
					for range byTime[r] {
						found = true
						want = append(want, fmt.Sprintf(`{"l":%d,"r":%d}`, l, r))
					}
				}
				if !found && kind == "outer" {
					want = append(want, fmt.Sprintf(`{"l":%d,"r":-1}`, l))
				}
			}
			for _, r := range times[1] {
				if kind == "outer" && !lefts[r-2] && !lefts[r-1] && !lefts[r] && !lefts[r+1] {
					want = append(want, fmt.Sprintf(`{"l":-1,"r":%d}`, r))
				}
			}
			out, err := optest.Run(g, optest.Options{Cut: func() int { return 1 + rng.IntN(3000) }}, records...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range out.Messages {
				got = append(got, string(m.Payload))
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%d results instead of %d", len(got), len(want))
			}
		})
	}
}
