package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/heraldmq/herald/client"
)

// What an operator does is seen step by step, by people and by programs, and what it
// remembers by step and key; a step that loses its state isn't updated unasked.
func TestOperatorsAreLookedAt(t *testing.T) {
	w := newWorld(t)
	for _, topic := range []string{"IN", "SUMS"} {
		w.must("topic", "create", topic, "--subjects", strings.ToLower(topic))
	}
	const spec = `operator: sums
inputs: [{topic: IN}]
errors: skip
steps:
  - key: [net, n]
  - {name: total, aggregate: {sum: sum(mag)}}
outputs: [{topic: SUMS, key: n}]
`
	if o := w.ok("operator", "deploy", w.file("sums.yaml", spec)); !strings.Contains(o.err, "sums.yaml:6:") || !strings.Contains(o.err, "warning: aggregate total keeps a row for each key") {
		t.Errorf("what lint warns of is told: %+v", o)
	}
	for _, body := range []string{`{"net":"us","n":1,"mag":2}`, `{"net":"us","n":1,"mag":3}`, `{"net":"ak","n":2,"mag":1}`, `{"net":"ak"}`} {
		w.must("pub", "in", body)
	}
	for _, want := range []string{"STEP ", "total", "1 error"} {
		w.eventually(want, "operator", "info", "sums")
	}
	var info client.OperatorInfo
	if err := json.Unmarshal([]byte(w.must("operator", "info", "sums", "-o", "json")), &info); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, row := range operatorSteps(&info).Cells {
		got[row[0]] = strings.Join([]string{row[1], row[2], row[4], row[6]}, " ")
	}
	if got["total"] != "3 3 2 " || got["key_1"] != "4 3  1 error" {
		t.Errorf("the steps are %v", got)
	}

	if s := w.must("operator", "state", "sums", "us"); !strings.Contains(s, "total") || !strings.Contains(s, `"us"`) || strings.Contains(s, `"ak"`) {
		t.Errorf("the state of us: %s", s)
	}
	var state []struct{ Step, Key, Name string }
	if err := json.Unmarshal([]byte(w.must("operator", "state", "sums", "-o", "json")), &state); err != nil || len(state) < 2 {
		t.Fatalf("the state: %v, %v", state, err)
	}
	for _, e := range state {
		if e.Step != "total" || !strings.HasPrefix(e.Key, `["`) || e.Name == "" {
			t.Errorf("an entry of the state: %+v", e)
		}
	}

	w.eventually("ADVERTISED AS", "operator", "info", "sums")
	w.eventually("output SUMS of operator sums", "discover", "SUMS")
	if o := w.ok("discover", "SUMS", "--ts"); !strings.Contains(o.out, "sum: number | null") || !strings.Contains(o.out, "net: unknown") {
		t.Errorf("its derived type: %+v", o)
	}
	all := w.file("api.yaml", w.ok("discover", "--asyncapi").out)
	if o := w.ok("advertise", "-f", all); !strings.Contains(o.err, "operator sums advertises it by itself") {
		t.Errorf("read back: %+v", o)
	}
	if o := w.ok("advertise", "rm", "SUMS"); !strings.Contains(o.err, "operator sums advertises SUMS again") {
		t.Errorf("withdrawn: %+v", o)
	}

	changed := w.file("changed.yaml", strings.Replace(spec, "sum(mag)", "max(mag)", 1))
	o := w.run("operator", "update", changed)
	if o.code == exitOK || !strings.Contains(o.err, "total: dropped") {
		t.Errorf("state was dropped unasked: %+v", o)
	}
	if s := w.must("operator", "state", "sums", "us"); !strings.Contains(s, "total") {
		t.Errorf("state is gone after an update that was not confirmed: %s", s)
	}
	w.must("operator", "update", changed, "--yes")
}

// What only the broker can find wrong with a file is told with its name, line and column.
func TestWhatTheBrokerFindsWrongInAFile(t *testing.T) {
	w := newWorld(t)
	file := w.file("op.yaml", strings.Replace(operatorFile, "filter: mag >= 4.5", "process: none", 1))
	if o := w.run("operator", "deploy", file); o.code == exitOK || !strings.Contains(o.err, file+":4:19: no process function none") {
		t.Errorf("deployed: %+v", o)
	}
}

// operator top gives programs all there is, each time.
func TestOperatorTopForPrograms(t *testing.T) {
	w := newWorld(t)
	w.must("topic", "create", "QUAKES")
	w.must("topic", "create", "BIG")
	w.must("operator", "deploy", w.file("op.yaml", operatorFile))
	b := w.start("operator", "top", "big", "-o", "ndjson", "--every", "100ms")
	b.until(&b.out, "\n{")
	line, _, _ := strings.Cut(b.out.String(), "\n")
	var i client.OperatorInfo
	if err := json.Unmarshal([]byte(line), &i); err != nil || i.Operator.Name != "big" || len(i.Replicas) != 1 {
		t.Fatalf("top says %s, %v", line, err)
	}
}
