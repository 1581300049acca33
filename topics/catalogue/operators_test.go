package catalogue

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/heraldmq/herald/topics"
)

func putOperator(t *testing.T, c *Catalogue, o Operator) Result {
	t.Helper()
	b, err := (&Command{Op: OpPutOperator, Time: 5, Operator: &o}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := DecodeCommand(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Apply(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOperatorsAreChangedOneRevisionAfterTheOther(t *testing.T) {
	c := New()
	o := Operator{Account: "A", Name: "op", Group: 1, Epoch: 1, Revision: 1, Spec: json.RawMessage(`{"a":1}`), State: Running}
	first := putOperator(t, c, o)
	if first.Fault != nil || first.Operator.ID != 1 || first.Operator.Began != 5 {
		t.Fatalf("deployed: %+v", first)
	}
	if r := putOperator(t, c, o); r.Fault != FaultOperatorChanged {
		t.Errorf("deployed again: %+v", r)
	}
	o.Revision, o.State, o.Error = 2, Failed, "why"
	if r := putOperator(t, c, o); r.Fault != nil || r.Operator.ID != 1 || c.Operator("A", "op").Error != "why" {
		t.Errorf("failed: %+v", r)
	}
	other := New()
	b, err := c.Freeze().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	again, err := other.Freeze().AppendBinary(nil)
	if err != nil || !bytes.Equal(b, again) {
		t.Errorf("a snapshot gives %s, %v, of %s", again, err, b)
	}
	for _, rev := range []uint64{1, 2} {
		r, err := other.Apply(&Command{Op: OpDropOperator, Account: "A", Name: "op", Revision: rev})
		if err != nil || (r.Fault == nil) != (rev == 2) {
			t.Errorf("dropped at %d: %+v, %v", rev, r, err)
		}
	}
	o.Revision = 1
	if r := putOperator(t, other, o); r.Operator.ID != 2 {
		t.Errorf("a number is used again: %+v", r)
	}
	if _, err := c.Apply(&Command{Op: OpPutOperator}); !errors.Is(err, topics.ErrBadEntry) {
		t.Errorf("nothing is put: %v", err)
	}
}
