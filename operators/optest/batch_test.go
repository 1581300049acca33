package optest_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/stream"
)

// byTime sorts records as ties are broken: event time, input, sequence.
func byTime(all []record) []record {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(x, y record) int { return cmp.Or(cmp.Compare(x.t, y.t), strings.Compare(x.input, y.input)) })
	return all
}

func only(all []record, input, k string) (out []record) {
	for _, r := range all {
		if (input == "" || r.input == input) && (k == "" || r.k == k) {
			out = append(out, r)
		}
	}
	return out
}

func sums(all []record) (n int, total int64) {
	for _, r := range all {
		total += r.v
	}
	return len(all), total
}

// within returns the records with from ≤ time < to.
func within(all []record, from, to int64) (out []record) {
	for _, r := range all {
		if r.t >= from && r.t < to {
			out = append(out, r)
		}
	}
	return out
}

const aggregated = "{aggregate: {n: count(), total: sum(v)}}, {map: {k: k, n: n, total: total, s: int(timestamp(window_start)), e: int(timestamp(window_end))}}]"

func window(k string, in []record, from, to int64) string {
	n, total := sums(in)
	return fmt.Sprintf(`{"k":%q,"n":%d,"total":%d,"s":%d,"e":%d}`, k, n, total, from, to)
}

var keys = []string{"k0", "k1", "k2"}

// Each kind of step against a computation over all records at once.
func TestAgainstBatch(t *testing.T) {
	for name, c := range map[string]struct {
		steps string
		batch func(a, b []record) []string
	}{
		"tumble": {"[{key: k}, {window: {tumble: 30s, offset: 7s}}, " + aggregated, func(a, _ []record) (out []string) {
			return fixed(a, 30, 30, 7)
		}},
		"hop": {"[{key: k}, {window: {hop: 50s, every: 20s}}, " + aggregated, func(a, _ []record) (out []string) {
			return fixed(a, 50, 20, 0)
		}},
		"slide": {"[{key: k}, {window: {slide: 20s}}, " + aggregated, func(a, _ []record) (out []string) {
			for _, k := range keys {
				seen := map[int64]bool{}
				for _, r := range only(a, "", k) {
					if !seen[r.t] {
						out = append(out, window(k, within(only(a, "", k), r.t-19, r.t+1), r.t-20, r.t))
					}
					seen[r.t] = true
				}
			}
			return out
		}},
		"session":     {"[{key: k}, {window: {session: 8s}}, " + aggregated, func(a, _ []record) []string { return sessions(a, 8, 1<<40) }},
		"session max": {"[{key: k}, {window: {session: 8s, max: 20s}}, " + aggregated, func(a, _ []record) []string { return sessions(a, 8, 20) }},
		"deduplicate": {"[{deduplicate: {by: v % 10, within: 40s}}, {map: t * 1000 + v}]", func(a, _ []record) (out []string) {
			last := map[int64]int64{}
			for _, r := range byTime(a) {
				if at, there := last[r.v%10]; !there || r.t >= at+40 {
					last[r.v%10] = r.t
					out = append(out, fmt.Sprint(r.t*1000+r.v))
				}
			}
			return out
		}},
		"interval join": {"[{from: a, join: {with: b, on: {left: k, right: k}, within: {before: 3s, after: 5s}, kind: left, as: {l: left, r: right}}}]", func(a, b []record) (out []string) {
			for _, l := range a {
				matched := false
				for _, r := range only(b, "", l.k) {
					if r.t-l.t >= -3 && r.t-l.t <= 5 {
						matched = true
						out = append(out, fmt.Sprintf(`{"l":%s,"r":%s}`, l.payload(), r.payload()))
					}
				}
				if !matched {
					out = append(out, fmt.Sprintf(`{"l":%s,"r":null}`, l.payload()))
				}
			}
			return out
		}},
		"window join": {"[{from: a, join: {with: b, on: {left: k, right: k}, window: {tumble: 10s}}}]", func(a, b []record) (out []string) {
			for _, l := range a {
				for _, r := range only(b, "", l.k) {
					if r.t/10 == l.t/10 {
						out = append(out, fmt.Sprintf(`{"left":%s,"right":%s}`, l.payload(), r.payload()))
					}
				}
			}
			return out
		}},
		"running": {"[{key: k}, {aggregate: {n: count(), total: sum(v)}}]", func(a, _ []record) (out []string) {
			n, total := map[string]int{}, map[string]int64{}
			for _, r := range a {
				n[r.k]++
				total[r.k] += r.v
				out = append(out, fmt.Sprintf(`{"k":%q,"n":%d,"total":%d}`, r.k, n[r.k], total[r.k]))
			}
			return out
		}},
		"count": {"[{key: k}, {window: {count: 6, every: 4}}, {aggregate: {n: count(), total: sum(v)}}, {map: {k: k, n: n, total: total}}]", func(a, _ []record) (out []string) {
			for _, k := range keys {
				of := only(a, "", k)
				for end := 4; end <= len(of); end += 4 {
					n, total := sums(of[max(0, end-6):end])
					out = append(out, fmt.Sprintf(`{"k":%q,"n":%d,"total":%d}`, k, n, total))
				}
			}
			return out
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				all := random(rand.New(rand.NewPCG(seed, 13)), 200)
				got := drainAll(t, kind{steps: c.steps}, all)
				want := c.batch(only(all, "a", ""), only(all, "b", ""))
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: %d results\n%s\nwanted %d\n%s", seed, len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// fixed are windows of a size that begin every so often from an offset.
func fixed(all []record, size, every, offset int64) (out []string) {
	for start := offset - 10*every; start < 3000; start += every {
		for _, k := range keys {
			if in := within(only(all, "", k), start, start+size); len(in) > 0 {
				out = append(out, window(k, in, start, start+size))
			}
		}
	}
	return out
}

func sessions(all []record, gap, most int64) (out []string) {
	for _, k := range keys {
		of := byTime(only(all, "", k))
		for len(of) > 0 {
			n := 1
			for n < len(of) && of[n].t < of[n-1].t+gap && of[n].t < of[0].t+most {
				n++
			}
			out = append(out, window(k, of[:n], of[0].t, min(of[n-1].t+gap, of[0].t+most)))
			of = of[n:]
		}
	}
	return out
}

// top is a changelog: what its last updates say is the ranking of everything.
func TestTopIsARanking(t *testing.T) {
	for seed := range uint64(5) {
		all := random(rand.New(rand.NewPCG(seed, 14)), 200)
		rows := map[string]string{}
		for _, line := range drainAll(t, kind{steps: `[{key: k}, {top: {n: 3, by: v}}, {map: {k: k, rank: rank, v: v, t: t}}]`}, all) {
			var k string
			var rank int
			if _, err := fmt.Sscanf(strings.NewReplacer(`"`, " ", ",", " ", ":", " ").Replace(line), "{ k   %s   rank  %d", &k, &rank); err != nil {
				t.Fatal(line, err)
			}
			rows[fmt.Sprint(k, rank)] = line
		}
		for _, k := range keys {
			of := only(all, "a", k)
			slices.SortStableFunc(of, func(x, y record) int { return cmp.Or(cmp.Compare(y.v, x.v), cmp.Compare(x.t, y.t)) })
			for rank, r := range of[:min(3, len(of))] {
				want := fmt.Sprintf(`{"k":%q,"rank":%d,"v":%d,"t":%d}`, k, rank+1, r.v, r.t)
				if got := rows[fmt.Sprint(k, rank+1)]; got != want {
					t.Errorf("seed %d: %s, wanted %s", seed, got, want)
				}
			}
		}
	}
}

func drainAll(t *testing.T, k kind, all []record) (out []string) {
	t.Helper()
	_, g := compile(t, k.text())
	var records []optest.Record
	for i := range all {
		records = append(records, optest.Record{Input: all[i].input, Payload: all[i].payload()})
	}
	r, err := optest.Run(g, optest.Options{}, records...)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Of("OUT") {
		out = append(out, string(m.Payload))
	}
	return out
}

// Late records are never lost in silence: they are counted, and go where they are told.
func TestLateRecordsAreSeen(t *testing.T) {
	_, g := compile(t, `
operator: late
time: {event: t, unit: s, max_future: 0s}
inputs: [{name: a, topic: A}]
steps:
  - window: {tumble: 10s, late: {allow: 5s, to: gone.late}}
  - {name: n, aggregate: {n: count()}}
  - {name: again, from: window_1.late, map: this}
outputs: [{topic: OUT, from: n}, {topic: LATE, from: again}]
`)
	var records []optest.Record
	for _, at := range []int{3, 12, 4, 14, 16, 5, 40} { // 4 comes within what is allowed, 5 doesn't
		records = append(records, optest.Record{Input: "a", Payload: fmt.Appendf(nil, `{"t":%d}`, at)})
	}
	out, err := optest.Run(g, optest.Options{}, records...)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range out.Of("OUT") {
		got = append(got, string(m.Payload))
	}
	if want := "windows with 2, 3 and 1"; len(got) != 3 || !strings.Contains(got[0], `"n":2`) || !strings.Contains(got[1], `"n":3`) {
		t.Errorf("%v, wanted %s", got, want)
	}
	for _, sink := range []string{"late of window_1", "LATE"} {
		if l := out.Of(sink); len(l) != 1 || string(l[0].Payload) != `{"t":5}` {
			t.Errorf("%s: %v", sink, l)
		}
	}
	if !slices.Contains(out.Counts, engine.Count{Step: "n", Name: stream.SideLate, N: 1}) {
		t.Errorf("%v", out.Counts)
	}
}
