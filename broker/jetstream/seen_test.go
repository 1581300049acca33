package jetstream

import (
	"context"
	"testing"
	"time"
)

func TestAChangeIsSeenWhereItWasAskedFor(t *testing.T) {
	r := newRig(t)
	seen := make(chan string, 8)
	r.c.answers[callSeen] = func(node string, body []byte) ([]byte, error) {
		seen <- node
		return r.c.handlers[callSeen](t.Context(), "a", body) // as if that were b's
	}
	r.next(r.send("b", "$JS.API.STREAM.CREATE.S", `{"name":"S"}`))
	if len(seen) != 2 {
		t.Errorf("%d nodes were asked", len(seen))
	}
	// One that never sees it holds the answer up only for a while.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if b, err := r.c.handlers[callSeen](ctx, "b", []byte(`{"id":99,"config":{}}`)); err != nil || string(b) != "false" {
		t.Errorf("got %s, %v", b, err)
	}
}
