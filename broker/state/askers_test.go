package state

import (
	"bytes"
	"testing"
)

// TestPartsComeBack cuts what holds several at each place: a part is whole, or bad.
func TestPartsComeBack(t *testing.T) {
	parts := [][]byte{{1, 2, 3}, {}, bytes.Repeat([]byte("x"), 300)}
	var all []byte
	for _, p := range parts {
		all = appendPart(all, p)
	}
	for n := range len(all) + 1 {
		b := bodyOf(all[:n])
		for i, want := range parts {
			got := b.part()
			if b.bad {
				if n == len(all) {
					t.Fatalf("part %d of the whole is bad", i)
				}
				break
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("cut at %d: part %d is %q", n, i, got)
			}
		}
		if n < len(all) && !b.bad {
			t.Errorf("cut at %d: nothing is bad", n)
		}
	}
}

// TestQuestionsThatWaitAreBounded fills the next call while others are on their way: what
// finds no room goes alone.
func TestQuestionsThatWaitAreBounded(t *testing.T) {
	a := &askers{}
	k := askerKey{"n", 1}
	a.of = map[askerKey]*asker{k: {running: askersInFlight}} // as if calls were on their way
	for i := range askersMax {
		if !a.add(nil, k, &question{body: []byte("12345")}) {
			t.Fatalf("question %d has no room", i)
		}
	}
	if a.add(nil, k, &question{body: []byte("12345")}) {
		t.Error("there is no bound")
	}
	w := a.of[k]
	if len(w.next) != askersMax || w.bytes != 5*askersMax {
		t.Errorf("%d questions of %d bytes wait", len(w.next), w.bytes)
	}
	w.next, w.bytes = nil, 0
	if a.add(nil, k, &question{body: make([]byte, askersBytes+1)}) {
		t.Error("one that is too large has room")
	}
}
