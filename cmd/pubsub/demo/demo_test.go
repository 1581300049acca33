package demo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/operators/optest"
)

func TestTheEmbeddedEvents(t *testing.T) {
	all, err := quakes()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1707 {
		t.Fatalf("%d events", len(all))
	}
	ids, feed := map[string]bool{}, feed()
	for i := range all {
		q := &all[i]
		if ids[q.ID] {
			t.Errorf("%s is there twice", q.ID)
		}
		ids[q.ID] = true
		subject, err := feed.Fill(q.tokens())
		if err != nil || strings.Count(subject, ".") != 2 || strings.ContainsAny(subject, " *>") {
			t.Errorf("%s has subject %q: %v", q.ID, subject, err)
		}
		if i > 0 && q.Updated < all[i-1].Updated {
			t.Errorf("%s is not in the order of reports", q.ID)
		}
	}
}

func TestTheSchemaFitsTheEvents(t *testing.T) {
	var s struct {
		Required   []string                   `json:"required"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	all, err := quakes()
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(q.line, &fields); err != nil {
			t.Fatal(err)
		}
		for name := range fields {
			if s.Properties[name] == nil {
				t.Fatalf("%s has %s, which the schema lacks", q.ID, name)
			}
		}
		for _, name := range s.Required {
			if v := fields[name]; v == nil || string(v) == "null" {
				t.Fatalf("%s lacks %s, which the schema requires", q.ID, name)
			}
		}
	}
}

func TestFaultsAreNamed(t *testing.T) {
	good := Report{Published: 3, Acked: 3, Live: 3, Stored: 3, Replayed: 3, LiveRepeats: 1, Results: 4}
	if f := good.Faults(); f != "" {
		t.Errorf("%q", f)
	}
	for says, spoil := range map[string]func(*Report){
		"receipt": func(r *Report) { r.Acked-- }, "live": func(r *Report) { r.Live-- }, "stored of": func(r *Report) { r.Stored++; r.Replayed++ },
		"replayed": func(r *Report) { r.Replayed-- }, "1 duplicates": func(r *Report) { r.Duplicates++ }, "1 missing": func(r *Report) { r.Missing++ },
		"1 damaged": func(r *Report) { r.Damaged++ }, "1 out of order": func(r *Report) { r.OutOfOrder++ },
		"gave nothing": func(r *Report) { r.Results = 0 }, "1 results": func(r *Report) { r.Differing++ },
	} {
		bad := good
		spoil(&bad)
		if f := bad.Faults(); !strings.Contains(f, says) {
			t.Errorf("%q, want %q in it", f, says)
		}
	}
}

func TestFacts(t *testing.T) {
	all, err := quakes()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(facts(all), "\n")
	for _, want := range []string{"magnitude 6.4", "Hualian, Taiwan", "574 km", "754 events", "12 networks; ci reported most (386)", "44 events"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestTheEmbeddedFlightsAndAirports(t *testing.T) {
	_, flights, airports, err := data()
	if err != nil {
		t.Fatal(err)
	}
	if len(flights) != 6000 || len(airports) != 213 {
		t.Fatalf("%d flights, %d airports", len(flights), len(airports))
	}
	named := map[string]bool{}
	for _, a := range airports {
		if a.Name == "" || a.City == "" || named[a.IATA] || strings.ContainsAny(a.IATA, " .*>") {
			t.Errorf("%+v", a)
		}
		named[a.IATA] = true
	}
	for i, f := range flights {
		if !named[f.Origin] || !named[f.Destination] {
			t.Errorf("flight %d: %+v has an airport that isn't there", i, f)
		}
		if i > 0 && f.Date < flights[i-1].Date {
			t.Errorf("flight %d is not in the order of dates", i)
		}
	}
}

func TestFaultsOfTheClusterAreNamed(t *testing.T) {
	good := func() *ClusterReport {
		return &ClusterReport{Quakes: 2, Flights: 1, Airports: 1, Acked: 4, Stored: 4, Kills: []Kill{{}}, Operators: []OperatorResult{{Name: "a", Results: 1}, {Name: "b", Results: 1}, {Name: "c", Results: 1}}}
	}
	if f := good().Faults(); f != "" {
		t.Errorf("%q", f)
	}
	for says, spoil := range map[string]func(*ClusterReport){
		"3 of 4 messages have a receipt": func(r *ClusterReport) { r.Acked-- }, "5 messages stored of 4": func(r *ClusterReport) { r.Stored++ },
		"1 missing": func(r *ClusterReport) { r.Missing++ }, "1 damaged": func(r *ClusterReport) { r.Damaged++ },
		"no primary": func(r *ClusterReport) { r.Kills = nil }, "2 operators": func(r *ClusterReport) { r.Operators = r.Operators[1:] },
		"operator b gave nothing":             func(r *ClusterReport) { r.Operators[1].Results = 0 },
		"1 results of operator c differ":      func(r *ClusterReport) { r.Operators[2].Differing = 1 },
		"2 rows of operator a are wrong":      func(r *ClusterReport) { r.Operators[0].Wrong = 2 },
		"the filter picked 0 of 1 events":     func(r *ClusterReport) { r.Strong = 1 },
		"the filter picked 7 of 0 events":     func(r *ClusterReport) { r.Filtered = 7 },
		"1 missing, 1 damaged or stored twic": func(r *ClusterReport) { r.Missing, r.Damaged = 1, 1 },
	} {
		bad := good()
		spoil(bad)
		if f := bad.Faults(); !strings.Contains(f, says) {
			t.Errorf("%q, want %q in it", f, says)
		}
	}
}

// What the operators give without a broker is what plain maps give; and each fault that can
// be in their results is found.
func TestOperatorsAgainstPlainMaps(t *testing.T) {
	d := &three{ClusterReport: &ClusterReport{Operators: make([]OperatorResult, 3)}}
	var err error
	if d.quakes, d.flights, d.ports, err = data(); err != nil {
		t.Fatal(err)
	}
	message := func(id string, payload []byte) *client.Message {
		return &client.Message{Payload: payload, Header: client.Header{client.MessageIDHeader: {id}}}
	}
	for _, q := range d.quakes {
		d.topics[0] = append(d.topics[0], message(q.ID, q.line))
	}
	for i, f := range d.flights {
		d.topics[1] = append(d.topics[1], message(fmt.Sprint("flight ", i), f.line))
	}
	for _, a := range d.ports {
		d.topics[2] = append(d.topics[2], message("airport "+a.IATA, a.line))
	}
	given := func() {
		for i, in := range [][]optest.Record{records(nil, "quakes", d.topics[0]), records(nil, "quakes", d.topics[0]), records(records(nil, "airports", d.topics[2]), "flights", d.topics[1])} {
			all, err := calm(operatorFiles[i], in)
			if err != nil {
				t.Fatal(err)
			}
			d.Operators[i] = OperatorResult{Name: all[0].Sink}
			for _, m := range all {
				d.Operators[i].results = append(d.Operators[i].results, &client.Message{Payload: m.Payload})
			}
		}
	}
	given()
	if err := d.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, rows := range []int{850, 8, 6000} {
		if o := d.Operators[i]; o.Rows != rows || o.Differing != 0 || o.Wrong != 0 || o.Results != len(o.results) {
			t.Errorf("%s: %d results, %d rows, %d differ, %d wrong", o.Name, o.Results, o.Rows, o.Differing, o.Wrong)
		}
	}
	if d.Stored != 1707+6000+213 || d.Missing != 0 || d.Damaged != 0 {
		t.Errorf("%+v", d.ClusterReport)
	}
	// One result is lost in each, a message is missing and another is there twice.
	given()
	d.ClusterReport.Stored = 0
	for i := range d.Operators {
		d.Operators[i].results = d.Operators[i].results[:len(d.Operators[i].results)-1]
	}
	d.topics[2] = append(d.topics[2][1:], d.topics[2][5])
	if err := d.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range d.Operators {
		if o.Differing == 0 || o.Wrong == 0 {
			t.Errorf("%s: a result is lost, and %d differ, %d are wrong", o.Name, o.Differing, o.Wrong)
		}
	}
	if d.Missing != 1 || d.Damaged != 1 {
		t.Errorf("%d missing, %d damaged", d.Missing, d.Damaged)
	}
}
