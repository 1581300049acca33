package catalogue

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/heraldmq/herald/topics"
)

// commands are some of every operation, with every field in one of them at least.
func commands() []*Command {
	cfg := config("orders", "orders.>", "audit.*")
	cfg.Metadata = map[string]string{"team": "x"}
	cfg.Sources = []*topics.StreamSource{{Name: "S", FilterSubject: "a.b"}}
	return []*Command{
		{Op: OpCreateTopic, Account: "A", Config: cfg, Limits: &Limits{Topics: 3, BytesRequired: true}, Groups: 2},
		{Op: OpUpdateTopic, Account: "A", Config: config("orders")},
		{Op: OpSyncedTopic, Topic: 7, Revision: 3},
		{Op: OpDeleteTopic, Account: "A", Name: "orders"},
		{Op: OpForgetTopic, Topic: 1 << 40},
		{Op: OpMoveTopic, Topic: 7, Step: MoveStart, Target: 4, Revision: 2},
		{Op: OpMark},
		{Op: OpPutOperator, Operator: &Operator{Account: "A", Name: "op", Group: 1, Epoch: 1, Spec: json.RawMessage(`{"a":[1]}`), IDs: map[string]uint16{"x": 1}}},
		{Op: OpDropOperator, Account: "A", Name: "op", Revision: 9},
		{Op: OpAdvertise, Account: "A", ID: "id", By: "u", Body: json.RawMessage(`{"name":"t","subject":"a.{b}"}`)},
		{Op: OpPutNode, Node: &Node{Name: "n", Addr: "x:1", State: Draining}},
		{Op: OpPutGroup, Group: &Group{ID: 2, Replicas: 3, Nodes: []string{"a", "b"}, Pinned: true, Revision: 1}},
		{Op: OpWithdraw, Account: "A", Owner: "o", Name: "t", Expired: true, Revision: 4, Time: 77},
	}
}

func encoded(t failer, c *Command) []byte {
	t.Helper()
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCommandsComeBack takes them one by one, all in one entry, and as a version before
// wrote them.
func TestCommandsComeBack(t *testing.T) {
	all := commands()
	seen := map[string]bool{}
	var bodies [][]byte
	for _, c := range all {
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", c.Op, err)
		}
		bodies = append(bodies, encoded(t, c))
		got, err := DecodeCommand(bodies[len(bodies)-1])
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %+v, %v", c.Op, got, err)
		}
		v := reflect.ValueOf(*c)
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				seen[v.Type().Field(i).Name] = true
			}
		}
		old, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeEntry(old); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], c) {
			t.Errorf("%s from JSON: %+v, %v", c.Op, got, err)
		}
	}
	if n := reflect.TypeFor[Command]().NumField(); len(seen) != n {
		t.Errorf("only %d of %d fields are looked at: %v", len(seen), n, seen)
	}
	if len(bodies) != len(ops) {
		t.Errorf("%d of %d operations are looked at", len(bodies), len(ops))
	}
	got, err := DecodeEntry(AppendEntry(nil, 5, bodies))
	if err != nil || len(got) != len(all) {
		t.Fatalf("%d commands, %v", len(got), err)
	}
	for i, c := range all {
		if c.Time == 0 {
			c.Time = 5
		}
		if !reflect.DeepEqual(got[i], c) {
			t.Errorf("%s in an entry: %+v", c.Op, got[i])
		}
	}
}

// TestDamagedEntriesAreRefused cuts an entry at each place, and changes what it says of
// itself.
func TestDamagedEntriesAreRefused(t *testing.T) {
	good := AppendEntry(nil, 5, [][]byte{encoded(t, commands()[0]), encoded(t, commands()[2])})
	bad := map[string][]byte{
		"a later version":      append([]byte{entryMagic, entryVersion + 1}, good[2:]...),
		"an unknown operation": AppendEntry(nil, 5, [][]byte{{byte(len(ops) + 1)}}),
		"an unknown field":     AppendEntry(nil, 5, [][]byte{append(encoded(t, commands()[6]), 200<<1&0x7f|0x80, 3, 1)}),
		"something behind":     append(good[:len(good):len(good)], 0),
		"nothing":              {},
	}
	for i := range good {
		bad["cut at "+string(rune('a'+i%26))] = good[:i]
		if _, err := DecodeEntry(good[:i]); !errors.Is(err, topics.ErrBadEntry) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
	for what, b := range bad {
		if all, err := DecodeEntry(b); !errors.Is(err, topics.ErrBadEntry) {
			t.Errorf("%s: %d commands, %v", what, len(all), err)
		}
	}
}

// TestWhatNoProgramWouldApplyIsNotProposed holds Check against Apply.
func TestWhatNoProgramWouldApplyIsNotProposed(t *testing.T) {
	for _, c := range []*Command{
		{},
		{Op: "topic.rename"},
		{Op: OpCreateTopic},
		{Op: OpUpdateTopic, Config: &topics.Config{}},
		{Op: OpMoveTopic, Topic: 1},
		{Op: OpPutOperator},
		{Op: OpPutOperator, Operator: &Operator{Name: "x"}},
		{Op: OpPutNode},
		{Op: OpPutNode, Node: &Node{}},
		{Op: OpPutGroup},
		{Op: OpPutGroup, Group: &Group{ID: 1, Replicas: 1}},
	} {
		if err := c.Check(); !errors.Is(err, topics.ErrBadEntry) {
			t.Errorf("%+v: %v", c, err)
		}
		if c.Op == OpMoveTopic {
			continue // of a topic that isn't there, which is looked at first
		}
		if _, err := New().Apply(c); !errors.Is(err, topics.ErrBadEntry) {
			t.Errorf("%+v is applied: %v", c, err)
		}
	}
}

func FuzzEntry(f *testing.F) {
	for _, c := range commands() {
		f.Add(AppendEntry(nil, 5, [][]byte{encoded(f, c)}))
	}
	f.Add([]byte(`{"op":"topic.create","account":"A","config":{"name":"t","subjects":["a.>"]},"groups":1}`))
	f.Add([]byte(`{"op":"adv.put","account":"A","body":{"name":"t","subject":"a.{b}"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := DecodeEntry(b)
		if err != nil {
			return
		}
		c := New()
		for _, cmd := range all {
			if again, err := cmd.Encode(); err == nil { // not the JSON of an operation that is not known
				if next, err := DecodeCommand(again); err != nil {
					t.Fatalf("%+v: %v", next, err)
				}
			}
			if _, err := c.Apply(cmd); err != nil && !errors.Is(err, topics.ErrBadEntry) {
				t.Fatal(err)
			}
		}
	})
}
