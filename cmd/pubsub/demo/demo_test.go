package demo

import (
	"encoding/json"
	"strings"
	"testing"
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
