package demo

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
)

//go:embed operators/*.yaml
var operatorFolder embed.FS

// operatorFiles are the operators of the demo.
var operatorFiles = func() (all []string) {
	for _, name := range []string{"quakes_hourly", "quakes_daily", "flights_named"} {
		b, err := operatorFolder.ReadFile("operators/" + name + ".yaml")
		if err != nil {
			panic(err) // it is in this program
		}
		all = append(all, string(b))
	}
	return all
}()

// calm runs an operator in this process on records in an order, where nothing fails.
func calm(file string, records []optest.Record) ([]optest.Message, error) {
	s, err := spec.Parse("demo.yaml", []byte(file))
	if err != nil {
		return nil, err
	}
	g, _, err := spec.Compile(s, spec.Options{})
	if err != nil {
		return nil, err
	}
	r, err := optest.Run(g, optest.Options{Open: true}, records...)
	if err != nil {
		return nil, err
	}
	return r.Messages, nil
}

// records are what a topic holds as an operator reads it.
func records(dst []optest.Record, topic string, all []*client.Message) []optest.Record {
	for _, m := range all {
		dst = append(dst, optest.Record{Input: topic, Subject: m.Subject, Payload: m.Payload})
	}
	return dst
}

// compare holds what is stored against what was published, and what the operators gave
// against two computations of it: the operator in this process, where nothing fails, and a
// few lines of Go with maps, which know nothing of operators.
func (d *three) compare(context.Context) error {
	var known [3]map[string]string
	for i := range known {
		known[i] = map[string]string{}
	}
	for _, q := range d.quakes {
		known[0][q.ID] = string(q.line)
	}
	for i, f := range d.flights {
		known[1][fmt.Sprint("flight ", i)] = string(f.line)
	}
	for _, p := range d.ports {
		known[2]["airport "+p.IATA] = string(p.line)
	}
	for i, all := range d.topics {
		d.Stored += len(all)
		for _, m := range all {
			if want, ok := known[i][m.ID()]; !ok || want != string(m.Payload) {
				d.Damaged++ // or stored twice
			}
			delete(known[i], m.ID())
		}
		d.Missing += len(known[i])
	}
	quakes := records(nil, "quakes", d.topics[0])
	flights := records(records(nil, "airports", d.topics[2]), "flights", d.topics[1])
	for i, given := range []struct {
		records []optest.Record
		plainly func(*OperatorResult) error
	}{{quakes, d.hourly}, {quakes, d.daily}, {flights, d.named}} {
		o := &d.Operators[i]
		want, err := calm(operatorFiles[i], given.records)
		if err != nil {
			return err
		}
		o.Results = len(o.results)
		for k := range max(len(want), len(o.results)) {
			if k >= len(want) || k >= len(o.results) || !bytes.Equal(want[k].Payload, o.results[k].Payload) {
				o.Differing++
			}
		}
		if err := given.plainly(o); err != nil {
			return fmt.Errorf("operator %s: %w", o.Name, err)
		}
	}
	return nil
}

// window is a row of a table of earthquakes: those of an hour and a network, or of a day.
type window struct {
	Net       string    `json:"net"`
	Start     time.Time `json:"window_start"`
	End       time.Time `json:"window_end"`
	Events    int       `json:"events"`
	Strongest *float64  `json:"strongest"`
	Magnitude *float64  `json:"magnitude"`
	Place     string    `json:"place"`
}

func (w window) key() string { return w.Net + " " + w.Start.Format(time.RFC3339) }

func (w window) text() string {
	mag := func(f *float64) string {
		if f == nil {
			return "-"
		}
		return fmt.Sprint(*f)
	}
	return fmt.Sprintf("%s %s %d %s %s %s", w.key(), w.End.Format(time.RFC3339), w.Events, mag(w.Strongest), mag(w.Magnitude), w.Place)
}

// windows counts earthquakes of each network in windows of a width; daily: of all, with
// the strongest's place.
func windows(all []quake, width time.Duration, daily bool) map[string]window {
	rows := map[string]window{}
	at := map[string]int64{} // when the strongest was
	for _, q := range all {
		start := time.UnixMilli(q.Time).UTC().Truncate(width)
		w := window{Net: q.Net, Start: start, End: start.Add(width)}
		if daily {
			w.Net = ""
		}
		if old, ok := rows[w.key()]; ok {
			w = old
		}
		w.Events++
		best := &w.Strongest
		if daily {
			best = &w.Magnitude
		}
		// Of equals the earliest.
		if q.Mag != nil && (*best == nil || *q.Mag > **best || *q.Mag == **best && q.Time < at[w.key()]) {
			*best, at[w.key()] = q.Mag, q.Time
			if daily {
				w.Place = q.Place
			}
		}
		rows[w.key()] = w
	}
	return rows
}

func (d *three) hourly(o *OperatorResult) error { return o.table(windows(d.quakes, time.Hour, false)) }

func (d *three) daily(o *OperatorResult) error {
	return o.table(windows(d.quakes, 24*time.Hour, true))
}

// table compares the last result of each row with what it should be.
func (o *OperatorResult) table(want map[string]window) error {
	last := map[string]window{}
	for _, m := range o.results {
		var w window
		if err := json.Unmarshal(m.Payload, &w); err != nil {
			return err
		}
		last[w.key()] = w
	}
	o.Rows = len(last)
	for key := range maps.Keys(want) {
		if last[key].text() != want[key].text() {
			o.Wrong++
		}
		delete(last, key)
	}
	o.Wrong += len(last)
	return nil
}

// named compares each flight's names with what the file of airports says.
func (d *three) named(o *OperatorResult) error {
	ports := map[string]airport{}
	for _, p := range d.ports {
		ports[p.IATA] = p
	}
	type row struct {
		Date     string `json:"date"`
		Delay    int    `json:"delay"`
		From     string `json:"from"`
		FromCity string `json:"from_city"`
		To       string `json:"to"`
		ToCity   string `json:"to_city"`
	}
	left := map[row]int{}
	for _, f := range d.flights {
		a, b := ports[f.Origin], ports[f.Destination]
		left[row{f.Date, f.Delay, a.Name, a.City, b.Name, b.City}]++
	}
	for _, m := range o.results {
		var r row
		if err := json.Unmarshal(m.Payload, &r); err != nil {
			return err
		}
		left[r]--
	}
	o.Rows = len(o.results)
	for _, n := range left {
		if n != 0 {
			o.Wrong++
		}
	}
	return nil
}

// clusterFacts are things worth knowing about the data.
func clusterFacts(all []quake, flights []flight, airports []airport) []string {
	var facts []string
	days := windows(all, 24*time.Hour, true)
	for _, key := range slices.Sorted(maps.Keys(days)) {
		w := days[key]
		facts = append(facts, fmt.Sprintf("%s: %3d events, the strongest %.1f, %s", w.Start.Format("2 January 2006"), w.Events, *w.Magnitude, w.Place))
	}
	var busiest window
	for _, w := range windows(all, time.Hour, false) {
		if w.Events > busiest.Events || w.Events == busiest.Events && w.key() < busiest.key() {
			busiest = w
		}
	}
	facts = append(facts, fmt.Sprintf("the busiest hour of a network: %d events of %s, %s", busiest.Events, busiest.Net, busiest.Start.Format("2 January 15:04 UTC")))
	latest := flights[0]
	for _, f := range flights {
		if f.Delay > latest.Delay {
			latest = f
		}
	}
	name := func(code string) string {
		i := slices.IndexFunc(airports, func(a airport) bool { return a.IATA == code })
		if i < 0 {
			return code
		}
		return airports[i].Name
	}
	return append(facts, fmt.Sprintf("the latest flight: %d minutes, %s to %s, %s", latest.Delay, name(latest.Origin), name(latest.Destination), latest.Date))
}
