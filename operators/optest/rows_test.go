package optest_test

import (
	"strings"
	"testing"

	"github.com/heraldmq/herald/operators/optest"
)

// An aggregate of rows follows what becomes of them: a row that is there again counts
// as it is now, one that is gone no more, and a group without rows is gone.
func TestAggregateOfRows(t *testing.T) {
	_, g := compile(t, `operator: rows
inputs: [{name: sold, topic: SOLD, table: true, key: id, delete: gone == true}]
steps:
  - filter: price > 0
  - key: kind
  - aggregate: {n: count(), total: sum(price), mean: avg(price)}
    row: id
outputs: [{topic: OUT, key: kind}]
`)
	var records []optest.Record
	for _, payload := range []string{
		`{"id":1,"kind":"a","price":10,"gone":false}`,
		`{"id":2,"kind":"a","price":-3,"gone":false}`, // no row yet
		`{"id":2,"kind":"a","price":5,"gone":false}`,
		`{"id":1,"kind":"a","price":4,"gone":false}`,
		`{"id":2,"kind":"a","price":5,"gone":true}`,
		`{"id":1,"kind":"a","price":-1,"gone":false}`, // filtered: gone
	} {
		records = append(records, optest.Record{Input: "sold", Payload: []byte(payload)})
	}
	out, err := optest.Run(g, optest.Options{}, records...)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range out.Of("OUT") {
		got = append(got, string(m.Payload))
	}
	want := []string{
		`{"kind":"a","n":1,"total":10,"mean":10}`,
		`{"kind":"a","n":2,"total":15,"mean":7.5}`,
		`{"kind":"a","n":2,"total":9,"mean":4.5}`,
		`{"kind":"a","n":1,"total":4,"mean":4}`,
		``,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("got\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
