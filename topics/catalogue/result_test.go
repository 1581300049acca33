package catalogue

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// A result loses nothing on its way to another node, whatever fields there are.
func TestResultIsSentWhole(t *testing.T) {
	a, fault := ParseAdvertisement([]byte(`{"name":"n","subject":"s","owner":{"team":"t"}}`))
	if fault != nil {
		t.Fatal(fault)
	}
	all := Result{
		Topic: &Topic{ID: 7, Config: topics.Config{Name: "T"}}, Created: true, Advertisement: a,
		Event:    &Event{Kind: "added", Revision: 3, Advertisement: a},
		Operator: &Operator{ID: 5, Name: "o", Spec: json.RawMessage(`{}`)},
		Tables:   true, Mark: true, Fault: FaultStale,
	}
	for i := range reflect.TypeFor[Result]().NumField() {
		name := reflect.TypeFor[Result]().Field(i).Name
		var one Result
		reflect.ValueOf(&one).Elem().Field(i).Set(reflect.ValueOf(all).Field(i))
		if reflect.ValueOf(one).Field(i).IsZero() {
			t.Fatalf("give %s something in this test", name)
		}
		b, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		var got Result
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if reflect.ValueOf(got).Field(i).IsZero() {
			t.Errorf("%s is lost: %s", name, b)
		}
	}
}
