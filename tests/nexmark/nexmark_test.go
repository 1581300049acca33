package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/operators/engine"
	"github.com/heraldmq/herald/operators/stream"
)

// plain is JSON with the fields by name, for comparing.
func plain(t *testing.T, v any) string {
	t.Helper()
	if b, ok := v.([]byte); ok {
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		v = map[string]any{}
		if err := d.Decode(&v); err != nil {
			t.Fatalf("an output that is no JSON: %v: %s", err, b)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each query gives what a computation over all events at once gives, whatever the
// steps it is run in, and also when it begins again from its state in the middle.
func TestQueriesAgainstBatch(t *testing.T) {
	g := &Generator{Seed: 7, Base: base, Rate: 500, Group: 300}
	if d := g.LengthMax(); d > time.Minute {
		t.Fatalf("auctions take up to %v: more than the queries think", d)
	}
	const events = 50_000
	all := make([]Event, 0, events)
	g.Stripe(0, 1, events, func(e *Event) { all = append(all, *e) })
	for k, q := range queries {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(k + 1)
			got := outcome(t, q, all, rand.New(rand.NewPCG(seed, 1)))
			var want []string
			for _, r := range q.want(all) {
				want = append(want, plain(t, r))
			}
			slices.Sort(got)
			slices.Sort(want)
			if len(want) < 3 {
				t.Errorf("only %d rows are wanted: the events are no test", len(want))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %d rows instead of %d; %s", seed, len(got), len(want), difference(got, want))
			}
		})
	}
}

// outcome runs a query and returns its rows: of a changelog, those there are in the end.
func outcome(t *testing.T, q query, all []Event, random *rand.Rand) []string {
	t.Helper()
	g, err := compile(q.name)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	table, bids := map[string]string{}, map[string]int64{}
	d, err := newDriver(g, base, func(o *engine.Output) {
		switch {
		case q.keyed && len(o.Payload) == 0:
			delete(table, headerOf(o.Header, "Herald-Key"))
		case q.keyed:
			table[headerOf(o.Header, "Herald-Key")] = plain(t, o.Payload)
		case q.name == "q10":
			rows = append(rows, plain(t, slices.Concat([]byte(`{"subject":"`+o.Subject+`",`), o.Payload[1:])))
		case q.name == "q12":
			var r struct{ Bidder, Bids int64 }
			if err := json.Unmarshal(o.Payload, &r); err != nil {
				t.Fatal(err)
			}
			bids[fmt.Sprint(r.Bidder)] += r.Bids
		default:
			rows = append(rows, plain(t, o.Payload))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.side(base.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	restart := len(all)/2 + random.IntN(1000)
	for at := 0; at < len(all); {
		n := min(1+random.IntN(1500), len(all)-at)
		if at < restart && at+n >= restart {
			if err := d.restart(); err != nil {
				t.Fatal(err)
			}
		}
		var batch []engine.Arrival
		for k := range n {
			batch = d.arrivals(batch, "NEXMARK", message(&all[at+k]))
		}
		d.clock += stream.Time(random.Int64N(int64(3 * time.Second)))
		if err := d.run(batch); err != nil {
			t.Fatal(err)
		}
		at += n
	}
	if err := d.end(); err != nil {
		t.Fatal(err)
	}
	for _, r := range table {
		rows = append(rows, r)
	}
	for bidder, n := range bids {
		rows = append(rows, fmt.Sprintf(`{"bidder":%s,"bids":%d}`, bidder, n))
	}
	for i, r := range rows {
		if q.name == "q12" {
			rows[i] = plain(t, []byte(r))
		}
	}
	return rows
}

// difference shows the first rows that only one of two sorted lists has.
func difference(got, want []string) string {
	var b strings.Builder
	for i, j, shown := 0, 0, 0; shown < 6 && (i < len(got) || j < len(want)); {
		switch {
		case j == len(want) || i < len(got) && got[i] < want[j]:
			fmt.Fprintf(&b, "\n  too much: %s", got[i])
			i, shown = i+1, shown+1
		case i == len(got) || got[i] > want[j]:
			fmt.Fprintf(&b, "\n  missing:  %s", want[j])
			j, shown = j+1, shown+1
		default:
			i, j = i+1, j+1
		}
	}
	return b.String()
}

// Events have the proportions that the benchmark says, and the same ones come again in
// whatever order and by how many producers they are made.
func TestGenerator(t *testing.T) {
	g := &Generator{Seed: 3, Base: base, Rate: 10_000}
	const n = 50_000
	var kinds [3]int
	var bytes [3]int
	var onHot, hotBidder, hotSeller, hotChannel int
	all := make([]Event, n)
	for i := range all {
		e := g.Event(int64(i))
		all[i] = e
		kinds[e.Kind]++
		bytes[e.Kind] += len(e.AppendJSON(nil))
		if !json.Valid(e.AppendJSON(nil)) {
			t.Fatalf("event %d is no JSON: %s", i, e.AppendJSON(nil))
		}
		switch {
		case e.Kind == Auction && e.Seller == firstID+lastPerson(e.Number)/hotPerson*hotPerson:
			hotSeller++
		case e.Kind == Auction && (e.Expires <= e.At || e.Expires > e.At+g.LengthMax().Milliseconds()):
			t.Fatalf("auction %d from %d to %d", e.ID, e.At, e.Expires)
		case e.Kind == Bid:
			if e.On == firstID+lastAuction(e.Number)/hotAuction*hotAuction {
				onHot++
			}
			if e.Bidder == firstID+lastPerson(e.Number)/hotPerson*hotPerson+1 {
				hotBidder++
			}
			if slices.Contains(channels[:], e.Channel) {
				hotChannel++
			}
		}
	}
	if kinds != [3]int{n / 50, 3 * n / 50, 46 * n / 50} {
		t.Errorf("kinds %v", kinds)
	}
	near := func(what string, got, of int, want float64) {
		if r := float64(got) / float64(of); r < want-0.02 || r > want+0.03 {
			t.Errorf("%s: %.3f instead of about %.3f", what, r, want)
		}
	}
	near("hot auctions", onHot, kinds[Bid], 0.505)
	near("hot bidders", hotBidder, kinds[Bid], 0.75)
	near("hot sellers", hotSeller, kinds[Auction], 0.75)
	near("hot channels", hotChannel, kinds[Bid], 0.5)
	for first := range int64(4) {
		g.Stripe(first, 4, n, func(e *Event) {
			if *e != all[e.Number] {
				t.Fatalf("event %d is another in a stripe", e.Number)
			}
		})
	}
	mixed := &Generator{Seed: 3, Base: base, Rate: 1000, Group: 50}
	seen := map[int64]bool{}
	for i := range int64(50) {
		seen[mixed.Event(i).At] = true
	}
	if len(seen) != 50 {
		t.Errorf("a group of 50 events has %d times", len(seen))
	}
}
