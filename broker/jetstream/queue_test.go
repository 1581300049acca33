package jetstream

import (
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The tests of several nodes wait more than they work: more of them run at once than
// there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // a flag that testing has, and a number
	goleak.VerifyTestMain(m)
}

func TestQueueKeepsTheOrderOfAKey(t *testing.T) {
	q := newQueue(4, 1000)
	q.start()
	var mu sync.Mutex
	ran := map[string][]int{}
	for i := range 300 {
		key := string(rune('a' + i%3))
		if !q.add(key, func() { mu.Lock(); ran[key] = append(ran[key], i); mu.Unlock() }) {
			t.Fatal("refused below the limit")
		}
	}
	q.close()
	for key, list := range ran {
		if len(list) != 100 || !slices.IsSorted(list) {
			t.Errorf("%s ran %v", key, list)
		}
	}
	if q.add("a", func() {}) {
		t.Error("taken after close")
	}
}

func TestQueueRefusesAboveItsLimit(t *testing.T) {
	q := newQueue(2, 3)
	n := 0
	for range 3 {
		if !q.add("a", func() { n++ }) {
			t.Fatal("refused below the limit")
		}
	}
	if q.add("b", func() { t.Error("refused, but run") }) {
		t.Fatal("taken above the limit")
	}
	q.start()
	q.close()
	if n != 3 || q.waiting != 0 {
		t.Errorf("%d ran, %d wait", n, q.waiting)
	}
}

func TestRequestsAreParsedFromTheirSubjects(t *testing.T) {
	for _, tt := range []struct {
		subject                string
		ok                     bool
		op, stream, name, tail string
	}{
		{"INFO", true, "INFO", "", "", ""},
		{"INFO.x", false, "", "", "", ""},
		{"STREAM.CREATE.S", true, "STREAM.CREATE", "S", "", ""},
		{"STREAM.CREATE", false, "", "", "", ""},
		{"STREAM.CREATE.", false, "", "", "", ""},
		{"STREAM.CREATE.S.x", false, "", "", "", ""},
		{"STREAM.MSG.GET.S", true, "STREAM.MSG.GET", "S", "", ""},
		{"STREAM.NAMES", true, "STREAM.NAMES", "", "", ""},
		{"STREAM.UNKNOWN.S", false, "", "", "", ""},
		{"STREAM.INFO.INFO", true, "STREAM.INFO", "INFO", "", ""},
		{"CONSUMER.CREATE.S", true, "CONSUMER.CREATE", "S", "", ""},
		{"CONSUMER.CREATE.S.C", true, "CONSUMER.CREATE", "S", "C", ""},
		{"CONSUMER.CREATE.S.C.a.*.>", true, "CONSUMER.CREATE", "S", "C", "a.*.>"},
		{"CONSUMER.DURABLE.CREATE.S.C", true, "CONSUMER.DURABLE.CREATE", "S", "C", ""},
		{"CONSUMER.DURABLE.CREATE.S", false, "", "", "", ""},
		{"CONSUMER.INFO.S.C", true, "CONSUMER.INFO", "S", "C", ""},
		{"CONSUMER.INFO.S.C.d", false, "", "", "", ""},
		{"CONSUMER.LEADER.STEPDOWN.S.C", true, "CONSUMER.LEADER.STEPDOWN", "S", "C", ""},
		{"META.LEADER.STEPDOWN", true, "META.LEADER.STEPDOWN", "", "", ""},
	} {
		r, ok := parseRequest(tt.subject)
		if ok != tt.ok {
			t.Errorf("%s: ok = %t", tt.subject, ok)
			continue
		}
		if ok && (r.op != tt.op || r.stream != tt.stream || r.name != tt.name || r.tail != tt.tail) {
			t.Errorf("%s: got %q %q %q %q", tt.subject, r.op, r.stream, r.name, r.tail)
		}
	}
}

func TestStreamOfAnAckSubject(t *testing.T) {
	for subject, want := range map[string]string{
		"S.C.1.2.3.4.5":               "S",
		"_.hash.S.C.1.2.3.4.5.random": "S",
		"dom.hash.S.C.1.2.3.4.5":      "S",
		"":                            "",
		"S":                           "S",
	} {
		if got := ackStream([]byte(subject)); got != want {
			t.Errorf("%q: got %q, want %q", subject, got, want)
		}
	}
}

// A job that waits holds up the jobs of its own key only, and no goroutine stays
// when the queue is closed.
func TestQueueRunsOtherKeysMeanwhile(t *testing.T) {
	q := newQueue(64, 1000)
	q.start()
	release := make(chan struct{})
	var held, ran sync.WaitGroup
	for i := range 40 {
		held.Add(1)
		q.add(fmt.Sprint("held", i), func() { held.Done(); <-release })
	}
	held.Wait()
	ran.Add(1)
	q.add("free", ran.Done)
	ran.Wait()
	close(release)
	q.close()
	if q.running != 0 || len(q.lanes) != 0 || len(q.ready) != 0 || q.waiting != 0 {
		t.Errorf("left behind: %d goroutines, %d lanes, %d ready, %d waiting", q.running, len(q.lanes), len(q.ready), q.waiting)
	}
}

func TestGoroutinesOfAQueueStayWhileTheyAreNeeded(t *testing.T) {
	const n = 8
	q := newQueue(n, 1000)
	q.rest = time.Hour // it is this test that dismisses
	q.start()
	burst := func() {
		t.Helper()
		var all sync.WaitGroup
		held := make(chan struct{})
		for i := range 2 * n {
			all.Add(1)
			if !q.add(fmt.Sprint(i), func() { <-held; all.Done() }) {
				t.Fatal("refused below the limit")
			}
		}
		close(held)
		all.Wait()
	}
	rests := func(want int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
			q.mu.Lock()
			idle, running := len(q.idle), q.running
			q.mu.Unlock()
			if idle == want && running == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d goroutines, %d of them idle, want %d", running, idle, want)
			}
		}
	}
	burst()
	rests(n)
	q.dismissSpare() // nobody knows yet which are needed
	rests(n)
	burst()
	rests(n)
	q.dismissSpare() // all were
	rests(n)
	q.dismissSpare()
	rests(0)
	burst()
	rests(n)
	q.close()
	if q.running != 0 {
		t.Errorf("%d goroutines are left", q.running)
	}
}
