package tests

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/cluster"
	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/topics/catalogue"
)

// TestClientKnowsWhatTheClusterSays: the client has its own types for what $HERALD.CLUSTER.>
// answers, since it imports nothing of the server. Both must have the same fields under the
// same names, and what one writes the other must read in full.
func TestClientKnowsWhatTheClusterSays(t *testing.T) {
	for _, twin := range []struct{ server, client any }{
		{cluster.Status{}, client.ClusterStatus{}},
		{cluster.Scrubbed{}, client.ClusterScrub{}},
	} {
		s, c := reflect.TypeOf(twin.server), reflect.TypeOf(twin.client)
		sameShape(t, s.Name(), s, c)
		full := reflect.New(s).Elem()
		fillIn(full, 1)
		wrote, err := json.Marshal(full.Interface())
		if err != nil {
			t.Fatal(err)
		}
		read := reflect.New(c)
		d := json.NewDecoder(strings.NewReader(string(wrote)))
		d.DisallowUnknownFields()
		if err := d.Decode(read.Interface()); err != nil {
			t.Errorf("%s: %v", s.Name(), err)
		}
		if again, err := json.Marshal(read.Interface()); err != nil || string(again) != string(wrote) {
			t.Errorf("%s: the client reads\n%s\nas\n%s (%v)", s.Name(), wrote, again, err)
		}
	}
}

// sameShape compares two types as JSON sees them.
func sameShape(t *testing.T, at string, a, b reflect.Type) {
	t.Helper()
	if a.Kind() != b.Kind() {
		t.Errorf("%s: %s and %s", at, a, b)
		return
	}
	switch {
	case a.Kind() == reflect.Slice:
		sameShape(t, at, a.Elem(), b.Elem())
	case a == reflect.TypeFor[time.Time](), a.Kind() != reflect.Struct:
	default:
		fields := map[string]reflect.StructField{}
		for _, f := range reflect.VisibleFields(b) {
			fields[f.Tag.Get("json")] = f
		}
		for _, f := range reflect.VisibleFields(a) {
			tag := f.Tag.Get("json")
			twin, ok := fields[tag]
			if !ok {
				t.Errorf("%s.%s: the client has no %q", at, f.Name, tag)
				continue
			}
			delete(fields, tag)
			sameShape(t, at+"."+f.Name, f.Type, twin.Type)
		}
		for tag, f := range fields {
			t.Errorf("%s: only the client has %s, %q", at, f.Name, tag)
		}
	}
}

// fillIn gives every field a value of its own.
func fillIn(v reflect.Value, n int) int {
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("s", n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			n = fillIn(v.Index(i), n+1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(n), 0).UTC()))
			break
		}
		for i := range v.NumField() {
			n = fillIn(v.Field(i), n+1)
		}
	default:
		panic("a field of kind " + v.Kind().String())
	}
	return n
}

// TestClientKnowsWhatAnAdvertisementSays: the same for advertisements, whose parts have
// types of the server's own, so that names are compared and not kinds.
func TestClientKnowsWhatAnAdvertisementSays(t *testing.T) {
	names := func(of any) map[string]bool {
		all := map[string]bool{}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
				all[name] = true
			}
		}
		return all
	}
	for _, twin := range []struct {
		server, client any
		more           []string // that only the client has
	}{
		{catalogue.Owner{}, client.Owner{}, nil},
		{catalogue.Schema{}, client.Schema{}, nil},
		{catalogue.Rate{}, client.Rate{}, nil},
		{catalogue.Durable{}, client.Keep{}, nil},
		{catalogue.Lease{}, client.Lease{}, nil},
		{catalogue.KeyBy{}, client.KeyBy{}, nil},
		{catalogue.TimeBy{}, client.TimeBy{}, nil},
		{catalogue.Lifecycle{}, client.Lifecycle{}, nil},
		{catalogue.Definition{}, client.Advertisement{}, []string{
			"headers_schema", "key", "time", "examples", "lifecycle", "enforce", "exclusive", "lineage", // the contract
			"id", "pattern", "revision", "created", "changed", "by", // of the broker's
		}},
	} {
		server, mine := names(twin.server), names(twin.client)
		for _, name := range twin.more {
			if !mine[name] || server[name] {
				t.Errorf("%T: %q should be the client's only", twin.client, name)
			}
			delete(mine, name)
		}
		if !reflect.DeepEqual(server, mine) {
			t.Errorf("%T has %v, %T has %v", twin.server, server, twin.client, mine)
		}
	}
	// The contract is read field by field: what the client writes of it must arrive.
	ad := client.Advertisement{
		Name: "orders", Subject: "orders.{id}", Role: "publishes", Kind: "event", HeadersSchema: []byte(`{"type":"object"}`), KeyBy: &client.KeyBy{Token: "id"},
		TimeBy: &client.TimeBy{Pointer: "/ts", Unit: "ms"}, Examples: []json.RawMessage{[]byte(`{"n":1}`)}, Lifecycle: &client.Lifecycle{Stage: "stable"},
		Enforce: "warn", Exclusive: true, Lineage: []string{"other"},
	}
	wrote, err := json.Marshal(ad)
	if err != nil {
		t.Fatal(err)
	}
	read, fault := catalogue.ParseAdvertisement(wrote)
	if fault != nil {
		t.Fatalf("%v: %s", fault, wrote)
	}
	c := read.Contract
	if string(c.HeadersSchema) != `{"type":"object"}` || c.KeyBy == nil || c.KeyBy.Token != "id" || c.TimeBy == nil || c.TimeBy.Pointer != "/ts" || len(c.Examples) != 1 ||
		c.Lifecycle == nil || c.Lifecycle.Stage != "stable" || c.Enforce != "warn" || !c.Exclusive || len(c.Lineage) != 1 {
		t.Errorf("the broker reads %s as %+v", wrote, c)
	}
}
