package replication

import (
	"slices"
	"testing"
)

func TestComparer(t *testing.T) {
	three := []string{"a/1", "b/1", "c/1"}
	var c comparer
	if v := c.say(10, "a/1", 7, three); v.odd != nil || v.split {
		t.Errorf("one of three: %+v", v)
	}
	if v := c.say(10, "b/1", 8, three); v.odd != nil || v.split {
		t.Errorf("two that differ: %+v", v)
	}
	if v := c.say(10, "c/1", 7, three); !slices.Equal(v.odd, []string{"b/1"}) || v.theirs != 7 {
		t.Errorf("the third decides: %+v", v)
	}
	if v := c.say(10, "c/1", 7, three); v.odd != nil {
		t.Errorf("told twice: %+v", v)
	}
	if c.agreed != 10 || c.digest != 7 {
		t.Errorf("agreed on %d: %d", c.agreed, c.digest)
	}
	// A majority first, the odd one late; one that doesn't vote is compared too, but
	// doesn't count.
	c.say(20, "a/1", 1, three)
	c.say(20, "d/1", 2, three)
	if v := c.say(20, "c/1", 1, three); !slices.Equal(v.odd, []string{"d/1"}) {
		t.Errorf("one without a vote: %+v", v)
	}
	if v := c.say(20, "b/2", 3, []string{"a/1", "b/2", "c/1"}); !slices.Equal(v.odd, []string{"b/2"}) {
		t.Errorf("the odd one late: %+v", v)
	}
	// No majority.
	c.say(30, "a/1", 1, three)
	c.say(30, "b/1", 2, three)
	if v := c.say(30, "c/1", 3, three); v.odd != nil || !v.split {
		t.Errorf("three different: %+v", v)
	}
	if v := c.say(30, "c/1", 3, three); v.split {
		t.Error("told twice")
	}
	two := []string{"a/1", "b/1"}
	c.say(40, "a/1", 1, two)
	if v := c.say(40, "b/1", 2, two); v.odd != nil || !v.split {
		t.Errorf("two that differ: %+v", v)
	}
	for i := range 100 {
		c.say(100, "x", uint64(i), three)
	}
	if len(c.rounds) > roundsMax {
		t.Errorf("%d rounds are remembered", len(c.rounds))
	}
}
