package operators_test

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/operators"
	"github.com/heraldmq/herald/operators/spec"
)

const file = `
operator: quakes_per_hour
version: 1.2.0
time: {event: this.time, unit: ms, disorder: 10s}
state: {ttl: 1h}
errors: {policy: dead-letter, to: quakes.errors}
inputs:
  - topic: QUAKES
    subjects: [quakes.us.>]
  - {name: nets, topic: NETS, table: true, key: net}
steps:
  - from: QUAKES
    filter: mag >= 4.5
  - key: net
  - window: {tumble: 1h}
  - name: hourly
    aggregate: {events: count(), strongest: 'max(place, by: mag)'}
    having: events > 3
  - {name: s, from: filter_1, split: {strong: mag >= 6, else: rest}}
  - {from: s.rest, project: [net, mag]}
  - {from: s.strong, join: {with: nets, on: {left: net, right: net}, table: true, kind: left}}
outputs:
  - {topic: QUAKES_HOURLY, from: hourly, key: net}
  - {live: quakes.alerts, from: join_1}
  - {topic: REST, from: project_1}
`

// A file and Go that say the same are the same operator.
func TestGoAndFileHaveOneDigest(t *testing.T) {
	fromFile, err := spec.Parse("quakes.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	op := operators.New("quakes_per_hour").Version("1.2.0").EventTime("this.time", "ms").Disorder(10 * time.Second).
		TTL(time.Hour).DeadLetters("quakes.errors")
	quakes := op.Input("QUAKES", func(in *spec.Input) { in.Subjects = []string{"quakes.us.>"} })
	nets := op.Input("NETS", func(in *spec.Input) {
		in.Name, in.Table, in.Key = "nets", true, []spec.Field{{Expr: spec.Expr{Text: "net"}}}
	})
	big := quakes.Filter("mag >= 4.5")
	big.Key("net").Tumble(time.Hour).
		Aggregate(operators.Field("events", "count()"), operators.Field("strongest", "max(place, by: mag)")).
		Named("hourly").Having("events > 3").
		To("QUAKES_HOURLY", func(o *spec.Output) { o.Key.Text = "net" })
	split := big.Split("rest", operators.Field("strong", "mag >= 6")).Named("s")
	rest := split.Branch("rest").Project("net", "mag")
	split.Branch("strong").Join(nets, spec.Join{Left: spec.Expr{Text: "net"}, Right: spec.Expr{Text: "net"}, Table: true, Kind: "left"}).Live("quakes.alerts")
	rest.To("REST")
	s := op.Spec()
	if s.Digest() != fromFile.Digest() {
		t.Fatalf("in Go   %s\nin YAML %s", s.JSON(), fromFile.JSON())
	}
	for _, one := range []*spec.Spec{s, fromFile} {
		g, _, err := spec.Compile(one, spec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if g.Digest != s.Digest() {
			t.Error("the graph has another digest")
		}
	}
	again, err := spec.Parse("canonical", s.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if again.Digest() != s.Digest() {
		t.Errorf("the canonical form is read as\n%s\ninstead of\n%s", again.JSON(), s.JSON())
	}
}
