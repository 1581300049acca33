package optest_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
	"github.com/heraldmq/herald/topics/value"
)

// The examples of docs/operators.md compile, their canonical form says the same, and
// their tests pass.
func TestExamplesOfTheDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operators.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := 0
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		examples++
		s, g := compile(t, block)
		again, err := spec.Parse("canonical", s.JSON())
		if err != nil || again.Digest() != s.Digest() {
			t.Errorf("%s: its canonical form: %v", g.Name, err)
		}
		for _, o := range optest.Examples(s, g) {
			if !o.Passed() {
				t.Errorf("%s, %s: %v\n%s", g.Name, o.Name, o.Err, o.Diff)
			}
		}
		for _, format := range spec.DrawFormats() {
			if _, ok := spec.Draw(g, format); !ok {
				t.Errorf("%s can't be drawn as %s", g.Name, format)
			}
		}
	}
	if examples < 4 {
		t.Errorf("only %d examples", examples)
	}
}

// quake is what the batch computations take of an event.
type quake struct {
	net, place string
	mag        float64
	time       int64
}

func quakes(t *testing.T) (all []quake, records []optest.Record) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "cmd", "pubsub", "demo", "earthquakes.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		v, err := value.Parse(bytes.TrimSpace(line), value.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var q quake
		net, _ := v.Get("net")
		place, _ := v.Get("place")
		mag, _ := v.Get("mag")
		at, _ := v.Get("time")
		q.net, q.place = net.Str(), place.Str()
		d, ok := mag.Decimal()
		if !ok {
			continue
		}
		q.mag, _ = d.Float64()
		q.time, _ = at.Int()
		all = append(all, q)
		records = append(records, optest.Record{Input: "quakes", Payload: bytes.TrimSpace(line)})
	}
	return all, records
}

// A week of real earthquakes, days out of order: events per network and hour, and the
// strongest of each day, are what a batch comes to.
func TestRealQuakes(t *testing.T) {
	all, records := quakes(t)
	_, g := compile(t, `
operator: quakes
time: {event: time, unit: ms, disorder: 30d, max_future: 0s}
inputs: [{name: quakes, topic: QUAKES}]
steps:
  - key: net
  - window: {tumble: 1h}
  - {name: hourly, aggregate: {events: count()}}
  - {name: daily, from: quakes, window: {tumble: 24h}}
  - {name: strongest, aggregate: {place: 'max(place, by: mag)', mag: max(mag)}}
outputs: [{topic: HOURLY, from: hourly}, {topic: DAILY, from: strongest}]
`)
	rng := rand.New(rand.NewPCG(1, 2))
	out, err := optest.Run(g, optest.Options{Cut: func() int { return 1 + rng.IntN(300) }}, records...)
	if err != nil {
		t.Fatal(err)
	}
	hours, days := map[string]int{}, map[int64]quake{}
	for _, q := range all {
		hours[fmt.Sprintf("%s %d", q.net, q.time/3_600_000)]++
		best, there := days[q.time/86_400_000]
		if !there || q.mag > best.mag || q.mag == best.mag && q.time < best.time {
			days[q.time/86_400_000] = q
		}
	}
	if got := out.Of("HOURLY"); len(got) != len(hours) {
		t.Errorf("%d hours, wanted %d", len(got), len(hours))
	}
	for _, m := range out.Of("HOURLY") {
		v, net, at := fields(t, m, "net")
		n, _ := v.Get("events")
		if got, _ := n.Int(); int(got) != hours[fmt.Sprintf("%s %d", net, at/3_600_000)] {
			t.Errorf("%s", m.Payload)
		}
	}
	if got := out.Of("DAILY"); len(got) != len(days) {
		t.Errorf("%d days, wanted %d", len(got), len(days))
	}
	for _, m := range out.Of("DAILY") {
		_, place, at := fields(t, m, "place")
		if want := days[at/86_400_000].place; place != want {
			t.Errorf("%s, wanted %s", m.Payload, want)
		}
	}
}

// fields returns a field of a result, and its window's start in milliseconds.
func fields(t *testing.T, m optest.Message, name string) (v value.Value, text string, start int64) {
	t.Helper()
	v, err := value.Parse(m.Payload, value.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, _ := v.Get(name)
	s, _ := v.Get("window_start")
	at, err := time.Parse(time.RFC3339, s.Str())
	if err != nil {
		t.Fatal(err)
	}
	return v, f.Str(), at.UnixMilli()
}

// Real flights joined with the airports they leave from, and counted by state. The data
// isn't in the repository: HERALD_DATA says where it lies.
func TestRealFlights(t *testing.T) {
	dir := os.Getenv("HERALD_DATA")
	if dir == "" {
		t.Skip("SKIPPED: HERALD_DATA doesn't say where flights.ndjson and airports.csv lie")
	}
	text, err := os.ReadFile(filepath.Join(dir, "airports.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	iata, state := slices.Index(rows[0], "iata"), slices.Index(rows[0], "state")
	states := map[string]string{}
	var records []optest.Record
	for _, r := range rows[1:] {
		states[r[iata]] = r[state]
		records = append(records, optest.Record{Input: "airports", Payload: fmt.Appendf(nil, `{"iata":%q,"state":%q}`, r[iata], r[state])})
	}
	if text, err = os.ReadFile(filepath.Join(dir, "flights.ndjson")); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{}
	for line := range bytes.Lines(text) {
		v, err := value.Parse(bytes.TrimSpace(line), value.Options{})
		if err != nil {
			t.Fatal(err)
		}
		origin, _ := v.Get("origin")
		if s, ok := states[origin.Str()]; ok {
			delay, _ := v.Get("delay")
			n, _ := delay.Int()
			want[s] += n
		}
		records = append(records, optest.Record{Input: "flights", Payload: bytes.TrimSpace(line)})
	}
	_, g := compile(t, `
operator: flights
inputs: [{name: flights, topic: FLIGHTS}, {name: airports, topic: AIRPORTS, table: true, key: iata}]
steps:
  - {from: flights, join: {with: airports, on: {left: origin, right: iata}, table: true, as: {state: right.state, delay: left.delay}}}
  - key: state
  - aggregate: {delay: sum(delay)}
outputs: [{topic: DELAYS, key: state}]
`)
	out, err := optest.Run(g, optest.Options{}, records...)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, m := range out.Of("DELAYS") { // a changelog: the last counts
		v, err := value.Parse(m.Payload, value.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, _ := v.Get("state")
		d, _ := v.Get("delay")
		got[s.Str()], _ = d.Int()
	}
	if len(got) < 20 || len(got) != len(want) {
		t.Fatalf("%d states, wanted %d", len(got), len(want))
	}
	for s, d := range want {
		if got[s] != d {
			t.Errorf("%s: %d minutes, wanted %d", s, got[s], d)
		}
	}
}
