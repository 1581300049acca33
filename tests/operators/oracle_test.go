package operators_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/tests/operators/bursts"
)

// head begins the operators under test: nothing but records moves their event time.
const head = `
operator: %[1]s
time: {event: at, unit: ms, disorder: 4s, idle_after: 0s, max_future: 0s}
inputs: [{topic: IN}]
%[2]s
outputs: [{topic: %[1]s, create: {replicas: 3}}]
`

// subject is one operator under test.
type subject struct {
	name, text string
	inputs     []string
	loose      bool // results come as the inputs are interleaved: in any order
	// want is the independent computation, nil where only the batch run is.
	want func(left, right []event, names map[string]string, until int64) []string
	// shown makes what want compares of what came out; nil: the payloads.
	shown func(rows []output) []string
}

func one(f func([]event) []string) func(l, r []event, n map[string]string, until int64) []string {
	return func(l, _ []event, _ map[string]string, _ int64) []string { return f(l) }
}

func timed(f func([]event, int64) []string) func(l, r []event, n map[string]string, until int64) []string {
	return func(l, _ []event, _ map[string]string, until int64) []string { return f(l, until) }
}

func subjects() []subject {
	in := []string{"IN"}
	simple := func(name, steps string, want func(l, r []event, n map[string]string, until int64) []string) subject {
		return subject{name: name, text: fmt.Sprintf(head, name, steps), inputs: in, want: want}
	}
	all := []subject{
		simple("FILTER", "steps: [{filter: v % 3 == 0}]", one(batchFilter)),
		simple("COUNT", "steps: [{key: k}, {aggregate: {n: count(), total: sum(v)}}]", one(batchCount)),
		simple("WINDOW", "steps: [{key: k}, {window: {tumble: 10s}}, {aggregate: {n: count(), total: sum(v)}}]", timed(batchWindow)),
		simple("SESSION", "steps: [{key: k}, {window: {session: 5s}}, {aggregate: {n: count()}}]", timed(batchSession)),
		simple("TOP", "steps: [{key: k}, {top: {n: 3, by: v}}]", one(batchTop)),
		simple("BURSTS", "steps: [{key: k}, {process: bursts, with: {quiet_ms: 5000}}]", nil), // by arrival: the batch run knows how
	}
	all[4].shown = ranks
	join := strings.Replace(fmt.Sprintf(head, "JOIN", `steps: [{from: IN, join: {with: RIGHT, on: {left: k, right: k}, within: 2s, as: {k: left.k, left: left.n, right: right.n}}}]`),
		"[{topic: IN}]", "[{topic: IN}, {topic: RIGHT}]", 1)
	table := strings.Replace(fmt.Sprintf(head, "NAMED", `steps: [{from: IN, join: {with: NAMES, on: {left: k, right: k}, table: true, as: {n: left.n, name: right.name}}}]`),
		"[{topic: IN}]", "[{topic: IN}, {topic: NAMES, table: true, key: k}]", 1)
	return append(all,
		subject{
			name: "JOIN", text: join, inputs: []string{"IN", "RIGHT"}, loose: true,
			want: func(l, r []event, _ map[string]string, _ int64) []string { return batchJoin(l, r) },
		},
		subject{
			name: "NAMED", text: table, inputs: []string{"NAMES", "IN"},
			want: func(l, _ []event, n map[string]string, _ int64) []string { return batchTable(l, n) },
		})
}

// ranks are the rows that a changelog of ranks leaves in the end.
func ranks(rows []output) (all []string) {
	last := map[string]string{}
	for _, o := range rows {
		var r struct {
			event
			Rank int `json:"rank"`
		}
		if err := json.Unmarshal([]byte(o.payload), &r); err != nil {
			return []string{o.payload + ": " + err.Error()}
		}
		last[fmt.Sprint(r.K, " ", r.Rank)] = fmt.Sprint(r.N)
	}
	for at, n := range last {
		all = append(all, at+": "+n)
	}
	return all
}

// evaluate runs an operator in one go on the records that the topics hold.
func evaluate(t *testing.T, s *subject, records []optest.Record) (rows []output) {
	t.Helper()
	p, err := spec.Parse(s.name, []byte(s.text))
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := spec.Compile(p, spec.Options{Functions: bursts.Functions})
	if err != nil {
		t.Fatal(err)
	}
	r, err := optest.Run(g, optest.Options{Open: true}, records...)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	for _, m := range r.Messages {
		rows = append(rows, output{op: header(string(m.Header), "Herald-Op"), payload: string(m.Payload)})
	}
	return rows
}

// oracle holds every output topic against both computations.
func (w *world) oracle(all []subject) {
	w.t.Helper()
	stored := map[string][]output{}
	for _, in := range []string{"IN", "RIGHT", "NAMES"} {
		stored[in] = w.read(in, w.sent[in])
	}
	left, right, names := events(w.t, stored["IN"]), events(w.t, stored["RIGHT"]), map[string]string{}
	for _, o := range stored["NAMES"] {
		var n struct{ K, Name string }
		if err := json.Unmarshal([]byte(o.payload), &n); err != nil {
			w.t.Fatal(err)
		}
		names[n.K] = n.Name
	}
	until := left[len(left)-1].At - 4000
	total := 0
	for i := range all {
		s := &all[i]
		var records []optest.Record
		for _, in := range s.inputs {
			for _, o := range stored[in] {
				records = append(records, optest.Record{Input: in, Payload: []byte(o.payload)})
			}
		}
		want := evaluate(w.t, s, records)
		got := w.read(s.name, len(want))
		total += len(got)
		w.same(s.name+" and its batch run", texts(want), texts(got), s.loose)
		w.once(s.name, got)
		if s.want == nil {
			continue
		}
		shown := func(rows []output) (all []string) {
			for _, o := range rows {
				all = append(all, o.payload)
			}
			return all
		}
		if s.shown != nil {
			shown = s.shown
		}
		w.same(s.name+" and what was computed from all events at once", s.want(left, right, names, until), shown(got), s.loose || s.shown != nil)
	}
	w.t.Logf("%d records, %d results of %d operators, each once", len(left)+len(right), total, len(all))
}

// once holds that every result has an identity of its own.
func (w *world) once(name string, rows []output) {
	w.t.Helper()
	origins := map[string]bool{}
	for _, o := range rows {
		if o.origin == "" || origins[o.origin] {
			w.t.Errorf("%s: origin %q of %s isn't its own", name, o.origin, o.payload)
		}
		origins[o.origin] = true
	}
}

func texts(rows []output) (all []string) {
	for _, o := range rows {
		all = append(all, strings.TrimSpace(o.op+" "+o.payload))
	}
	return all
}

func events(t *testing.T, rows []output) (all []event) {
	t.Helper()
	for _, o := range rows {
		var e event
		if err := json.Unmarshal([]byte(o.payload), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// same compares lists, in any order if that is so.
func (w *world) same(what string, want, got []string, loose bool) {
	w.t.Helper()
	if loose {
		want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	}
	for i := range max(len(want), len(got)) {
		a, b := "nothing", "nothing"
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		if a != b {
			w.t.Errorf("%s differ: result %d of %d should be %s, and is %s (of %d)", what, i+1, len(want), a, b, len(got))
			return
		}
	}
	if len(want) == 0 {
		w.t.Errorf("%s: there are no results, so nothing is shown", what)
	}
}

// Test09 kills, pauses and cuts off the primary of one operator after the other.
func Test09OutputIsThatOfTheBatchWhilePrimariesFail(t *testing.T) {
	w := begin(t)
	all := subjects()
	w.inputs()
	for i := range 20 {
		w.publish("NAMES", fmt.Appendf(nil, `{"k":"k%d","name":"name %d","at":0}`, i, i))
	}
	for _, s := range all {
		w.deploy(s.name, s.text)
	}
	w.eventually("the table to be read", func() (bool, string) {
		n, err := w.took("NAMED")
		return err == nil && n >= 20, fmt.Sprint(n, " records, ", err)
	})
	stop := w.load()
	end := time.After(pick(8*time.Second, 10*time.Minute))
	failures := 0
	for going := true; going; {
		select {
		case <-end:
			going = false
		case <-time.After(time.Second):
			w.fail(all[w.rng.IntN(len(all))].name)
			failures++
		}
	}
	w.heal()
	stop()
	w.oracle(all)
	t.Logf("%d failures of primaries: %v", failures, w.done)
}
