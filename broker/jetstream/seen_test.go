package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
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

// TestOfNewStreamsElsewhereTheGroupIsAskedAboutNowAndThen: what a new stream holds is
// known, and its group's members were told of a moment ago.
func TestOfNewStreamsElsewhereTheGroupIsAskedAboutNowAndThen(t *testing.T) {
	r := newRig(t)
	r.c.set(1, "b")
	asked := 0
	r.c.answers[callStreams] = func(_ string, body []byte) ([]byte, error) {
		asked++
		var q streamsQuery
		if err := json.Unmarshal(body, &q); err != nil {
			return nil, err
		}
		return json.Marshal(streamsAnswer{Done: 1, Infos: []streamPart{
			{ID: q.IDs[0], Cluster: &jsapi.ClusterInfo{Name: "C", Leader: "b", Replicas: []*jsapi.PeerInfo{{Name: "c"}}}},
		}})
	}
	leader := func(name string, want any, questions int) {
		t.Helper()
		v := r.ask("STREAM.CREATE."+name, `{"name":"`+name+`"}`)
		in, _ := v["cluster"].(map[string]any)
		if v["error"] != nil || in["leader"] != want || asked != questions {
			t.Errorf("%s: %v, after %d questions, want %d", name, v, asked, questions)
		}
	}
	leader("S1", "b", 1)
	r.s.groups.of[1] = seenAt{r.s.groups.of[1].info, time.Now().Add(time.Hour)} // however slow the machine is
	leader("S2", "b", 1)
	leader("S2", "b", 2) // it was there, and may hold something
	r.s.groups.of[1] = seenAt{r.s.groups.of[1].info, time.Now().Add(-2 * clusterFresh)}
	leader("S3", "b", 3)
	r.s.groups.of[1] = seenAt{&jsapi.ClusterInfo{Leader: "c"}, time.Now().Add(time.Hour)}
	leader("S4", "b", 4)
}
