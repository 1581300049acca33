package jetstream

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

func TestAChangeIsSeenWhereItWasAskedFor(t *testing.T) {
	r := newRig(t)
	seen := make(chan string, 8)
	r.c.answers[callAbreast] = func(node string, body []byte) ([]byte, error) {
		seen <- node
		return r.c.handlers[callAbreast](t.Context(), "a", body) // as if that were b's
	}
	r.next(r.send("b", "$JS.API.STREAM.CREATE.S", `{"name":"S"}`))
	if len(seen) != 2 {
		t.Errorf("%d nodes were asked", len(seen))
	}
	// One that doesn't come so far holds the answer up only for a while.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	far := appendReach(nil, map[topics.GroupID]topics.Index{1: 1000})
	if _, err := r.c.handlers[callAbreast](ctx, "b", far); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := r.c.handlers[callAbreast](ctx, "b", far[:5]); err == nil {
		t.Error("half a question was answered")
	}
}

// TestQuestionsWhetherChangesAreSeenAreSharedByThoseWhoWait holds up the first ones, so
// that the rest has to go together.
func TestQuestionsWhetherChangesAreSeenAreSharedByThoseWhoWait(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	asked := map[string]int{}
	hold := make(chan struct{})
	r.c.answers[callAbreast] = func(node string, _ []byte) ([]byte, error) {
		mu.Lock()
		asked[node]++
		mu.Unlock()
		<-hold
		return nil, nil
	}
	const many = 50
	var done []<-chan struct{}
	for i := range many {
		done = append(done, r.s.abreast.ask("b", map[topics.GroupID]topics.Index{1: topics.Index(i)}))
	}
	close(hold)
	for _, c := range done {
		<-c
	}
	mu.Lock()
	defer mu.Unlock()
	if asked["b"] > abreastMax+2 {
		t.Errorf("%d questions for %d who wait", asked["b"], many)
	}
}
