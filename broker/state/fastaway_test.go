package state

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
)

// fastBatch publishes a fast batch on a node, in pieces, and returns all answers up to
// the one that ends it.
func (f *fleet) fastBatch(on, topic, id, gap string, n int) (answers []string) {
	f.Helper()
	t, ok := f.nodes[on].Topic("A", topic)
	if !ok {
		f.Fatalf("%s doesn't know %s", on, topic)
	}
	all := make(chan string, 4*n)
	for i := 1; i <= n; i++ {
		op := fastAppend
		switch i {
		case 1:
			op = fastStart
		case n:
			op = fastCommit
		}
		reply := fmt.Sprintf("_R.%s.%s.10.%s.%d.%d.$FI", on, id, gap, i, op)
		f.mu.Lock()
		f.acks[reply] = all
		f.mu.Unlock()
		t.Group().Capture([]front.Captured{{
			Topic: t.ID(), Subject: []byte("t." + on), Reply: []byte(reply), Payload: []byte(fmt.Sprintf("%s %d", id, i)),
		}})
	}
	for {
		select {
		case a := <-all:
			answers = append(answers, a)
			if strings.Contains(a, `"count"`) || strings.Contains(a, `"error"`) || strings.Contains(a, "503") {
				return answers
			}
		case <-time.After(10 * time.Second):
			f.Errorf("fast batch %s on %s: no end; so far %q", id, on, answers)
			return answers
		}
	}
}

// TestFastBatchesWorkFromEveryNode: whoever leads, alone and side by side, with gaps
// allowed or not; and while the topic's lead has gone elsewhere they begin anew.
func TestFastBatchesWorkFromEveryNode(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	cfg := replicated(3, "T", "t.>")
	cfg.AllowBatched = true
	f.create("a", cfg)
	f.notLeading("T")
	const n = 60
	stored := 0
	check := func(on, id string, answers []string) {
		t.Helper()
		last := answers[len(answers)-1]
		if !strings.Contains(last, fmt.Sprintf(`"batch":"%s","count":%d`, id, n)) {
			t.Errorf("%s: batch %s ends with %q, before %q", on, id, last, answers)
		}
		if !strings.Contains(answers[0], `"type":"ack","seq":0`) {
			t.Errorf("%s: batch %s begins with %q", on, id, answers[0])
		}
	}
	for i, on := range f.names() {
		for _, gap := range []string{"ok", "fail"} {
			id := fmt.Sprintf("b%d%s", i, gap)
			answers := f.fastBatch(on, "T", id, gap, n)
			check(on, id, answers)
			stored += n
			if last := answers[len(answers)-1]; !strings.Contains(last, fmt.Sprintf(`"seq":%d,`, stored)) {
				t.Errorf("%s: %q, %d messages were stored", on, last, stored)
			}
		}
	}
	var all sync.WaitGroup
	for _, on := range f.names() {
		all.Go(func() { check(on, "side-"+on, f.fastBatch(on, "T", "side-"+on, "fail", n)) })
		stored += n
	}
	all.Wait()
	f.same("T")
	topic, _ := f.nodes["a"].Topic("A", "T")
	if st := topic.Data().State(); st.Messages != uint64(stored) {
		t.Errorf("%d messages, want %d", st.Messages, stored)
	}
	to := f.notLeading("T")
	f.wait(to+" leads", func() (bool, string) {
		if topic.Group().Leader() == to {
			return true, ""
		}
		return false, fmt.Sprint(topic.Group().Transfer(timed(t), to))
	})
	for _, on := range f.names() {
		check(on, "later-"+on, f.fastBatch(on, "T", "later-"+on, "ok", n))
	}
}
