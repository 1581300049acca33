package delivery

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldmq/herald/topics"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate runs a test in a bubble with its own clock.
func simulate(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func TestPullGivesWhatIsThereAndWaitsForMore(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in.1", `{"batch":3,"expires":5000000000}`)
		got := w.want("in.1", "m1", "m2")
		for i, s := range got {
			prefix := fmt.Sprintf("$JS.ACK.S.c.1.%d.%d.", i+1, i+1)
			if !strings.HasPrefix(s.reply, prefix) || !strings.HasSuffix(s.reply, fmt.Sprintf(".%d", 1-i)) || strings.Count(s.reply, ".") != 8 {
				t.Errorf("ack subject %q", s.reply)
			}
		}
		w.publish("c")
		w.want("in.1", "m3")
		w.pass(6 * time.Second)
		w.want("in.1")
	})
}

func TestPullStatuses(t *testing.T) {
	tests := []struct {
		name string
		cfg  topics.ConsumerConfig
		msgs int
		body string
		wait time.Duration
		want []string
	}{
		{"empty body is one", topics.ConsumerConfig{}, 2, "", 0, []string{"m1"}},
		{"bare integer", topics.ConsumerConfig{}, 3, "2", 0, []string{"m1", "m2"}},
		{"no wait, nothing", topics.ConsumerConfig{}, 0, `{"batch":2,"no_wait":true}`, 0, []string{"404 No Messages"}},
		{"no wait, some", topics.ConsumerConfig{}, 1, `{"batch":2,"no_wait":true}`, 0, []string{"m1", "404 No Messages"}},
		{"no wait but expires", topics.ConsumerConfig{}, 0, `{"batch":2,"no_wait":true,"expires":1000000000}`, 2 * time.Second, []string{"408 Request Timeout"}},
		{"expires", topics.ConsumerConfig{}, 1, `{"batch":2,"expires":1000000000}`, 2 * time.Second, []string{"m1", "408 Request Timeout"}},
		{
			"heartbeats",
			topics.ConsumerConfig{},
			0, `{"batch":1,"expires":1000000000,"idle_heartbeat":400000000}`, 2 * time.Second,
			[]string{"100 Idle Heartbeat", "100 Idle Heartbeat", "408 Request Timeout"},
		},
		{
			"too large for max_bytes",
			topics.ConsumerConfig{},
			1, `{"batch":2,"max_bytes":10,"expires":1000000000}`, 0,
			[]string{"409 Message Size Exceeds MaxBytes"},
		},
		{
			"batch done, bytes left",
			topics.ConsumerConfig{},
			2, `{"batch":1,"max_bytes":1000,"expires":1000000000}`, 0,
			[]string{"m1", "409 Batch Completed"},
		},
		{"bad json", topics.ConsumerConfig{}, 0, `{`, 0, []string{"400 Bad Request - unexpected end of JSON input"}},
		{
			"heartbeat too large",
			topics.ConsumerConfig{},
			0, `{"expires":1000,"idle_heartbeat":501}`, 0,
			[]string{"400 Bad Request - heartbeat value too large"},
		},
		{"batch cap", topics.ConsumerConfig{MaxRequestBatch: 5}, 1, "6", 0, []string{"409 Exceeded MaxRequestBatch of 5"}},
		{
			"expires cap",
			topics.ConsumerConfig{MaxRequestExpires: time.Second},
			1, `{"expires":2000000000}`, 0,
			[]string{"409 Exceeded MaxRequestExpires of 1s"},
		},
		{"bytes cap", topics.ConsumerConfig{MaxRequestMaxBytes: 5}, 1, `{"max_bytes":6}`, 0, []string{"409 Exceeded MaxRequestMaxBytes of 5"}},
		{"push based", topics.ConsumerConfig{DeliverSubject: "d"}, 1, "", 0, []string{"409 Consumer is push based"}},
		{
			"group missing",
			topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "overflow"},
			1, `{"batch":1}`, 0,
			[]string{"400 Bad Request - Priority Group missing"},
		},
		{
			"group unknown",
			topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "overflow"},
			1, `{"group":"h"}`, 0,
			[]string{"400 Bad Request - Invalid Priority Group"},
		},
		{
			"not overflow",
			topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "pinned_client"},
			1, `{"group":"g","min_pending":1}`, 0,
			[]string{"400 Bad Request - Not a Overflow Priority consumer"},
		},
		{
			"not pinned",
			topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "overflow"},
			1, `{"group":"g","id":"x"}`, 0,
			[]string{"400 Bad Request - Not a Pinned Client Priority consumer"},
		},
		{
			"paused",
			topics.ConsumerConfig{PauseUntil: ptr(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))},
			1, `{"expires":1000000000}`, 2 * time.Second,
			[]string{"408 Request Timeout"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				for range tt.msgs {
					w.publish("a")
				}
				w.consumer("c", tt.cfg)
				w.pull("c", "in", tt.body)
				if tt.wait > 0 {
					w.pass(tt.wait)
				}
				w.want("in", tt.want...)
			})
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestPullTimeoutTellsWhatIsLeft(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in", `{"batch":3,"max_bytes":500,"expires":1000000000}`)
		w.pass(2 * time.Second)
		got := w.want("in", "m1", "408 Request Timeout")
		size := len(got[0].subject) + len(got[0].reply) + len(got[0].payload)
		want := fmt.Sprintf("NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 2\r\nNats-Pending-Bytes: %d\r\n\r\n", 500-size)
		if got[1].header != want {
			t.Errorf("header %q, want %q", got[1].header, want)
		}
	})
}

func TestPullRequestsTakeTurns(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in.1", `{"batch":10,"expires":5000000000}`)
		w.pull("c", "in.2", `{"batch":10,"expires":5000000000}`)
		w.publish("a", "a", "a", "a")
		w.want("in.1", "m1", "m3")
		w.want("in.2", "m2", "m4")
		if i := w.info("c"); i.NumWaiting != 2 || i.NumAckPending != 4 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestMaxWaiting(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{MaxWaiting: 1})
		w.pull("c", "in.1", `{"expires":5000000000}`)
		w.pull("c", "in.2", `{"expires":5000000000}`)
		w.want("in.2", "409 Exceeded MaxWaiting")
		w.pull("c", "in.2", `{"expires":5000000000,"idle_heartbeat":1000000000}`)
		w.want("in.2")
		w.listen("in.1", false) // the first one has gone away
		w.pull("c", "in.2", `{"expires":5000000000}`)
		w.publish("a")
		w.want("in.2", "m1")
	})
}

func TestAcknowledgements(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{AckWait: 10 * time.Second, MaxDeliver: 2})
		w.pull("c", "in", `{"batch":10,"expires":100000000000}`)
		m := w.want("in", "m1", "m2", "m3", "m4")

		w.ack(m[0], "+ACK", "sync")
		w.want("sync", "")
		if c := w.topic.Consumer("c"); c.AckFloor().Stream != 1 || c.Delivered().Stream != 4 {
			t.Errorf("a double ack was answered before it was applied: floor %+v delivered %+v", c.AckFloor(), c.Delivered())
		}
		w.ack(m[0], "+ACK", "sync")
		w.want("sync", "") // once more: there is nothing to record
		w.pass(time.Second)
		w.ack(m[0], "what?", "sync")
		w.want("sync", "")
		w.ack(m[1], "-NAK", "")
		got := w.want("in", "m2")
		if !strings.HasPrefix(got[0].reply, "$JS.ACK.S.c.2.2.5.") {
			t.Errorf("redelivery %q", got[0].reply)
		}
		w.ack(m[2], `-NAK {"delay":3000000000}`, "")
		w.want("in")
		w.pass(4 * time.Second)
		w.want("in", "m3")
		w.ack(m[3], "+TERM bad input", "")
		term := w.take("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.S.c")
		if len(term) != 1 || !strings.Contains(term[0].payload, `"reason":"bad input"`) {
			t.Errorf("advisories %v", term)
		}
		if n := len(w.take("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.S.c")); n != 2 {
			t.Errorf("%d nak advisories", n)
		}
		w.pass(20 * time.Second) // both have been delivered twice
		w.want("in")
		max := w.take("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.c")
		if len(max) != 2 || !strings.Contains(max[0].payload, `"stream_seq":2,"deliveries":2`) {
			t.Errorf("advisories %v", max)
		}
		i := w.info("c")
		if i.NumAckPending != 0 || i.AckFloor.Stream != 4 || i.NumPending != 0 {
			t.Errorf("info %+v", i)
		}
		if c := w.topic.Consumer("c"); c.NumAckPending() != 0 {
			t.Errorf("the replicated copy still waits for %d", c.NumAckPending())
		}
		if len(w.topic.acked) != 2 { // m1 and m4; what was given up stays in the topic
			t.Errorf("acknowledged %v", w.topic.acked)
		}
	})
}

func TestProgressAndRedelivery(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{AckWait: 10 * time.Second})
		w.pull("c", "in", `{"batch":10,"expires":100000000000}`)
		m := w.want("in", "m1")
		w.pass(8 * time.Second)
		w.ack(m[0], "+WPI", "")
		w.pass(8 * time.Second)
		w.want("in")
		w.pass(3 * time.Second)
		w.want("in", "m1")
		if i := w.info("c"); i.NumRedelivered != 1 || i.NumAckPending != 1 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestAckNext(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in", "1")
		m := w.want("in", "m1")
		w.listen("next", true)
		w.ack(m[0], "+NXT 2", "next")
		w.want("next", "m2", "m3")
		if i := w.info("c"); i.AckFloor.Stream != 1 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestMaxAckPendingHoldsBack(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{MaxAckPending: 2})
		w.pull("c", "in", `{"batch":10,"expires":100000000000}`)
		m := w.want("in", "m1", "m2")
		w.ack(m[1], "", "")
		w.want("in", "m3")
	})
}

func TestEnds(t *testing.T) {
	ends := map[string]struct {
		end  func(w *world)
		want string
	}{
		"consumer deleted": {func(w *world) { w.e.ConsumerChanged(7, "c", Deleted) }, "409 Consumer Deleted"},
		"topic deleted":    {func(w *world) { w.e.TopicDeleted(7) }, "409 Consumer Deleted"},
		"leadership":       {func(w *world) { w.e.Lead(false) }, "409 Leadership Change"},
		"shutdown":         {func(w *world) { w.e.Close() }, "409 Server Shutdown"},
	}
	for name, tt := range ends {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world) {
				w.consumer("c", topics.ConsumerConfig{})
				w.pull("c", "in", `{"expires":100000000000}`)
				synctest.Wait()
				tt.end(w)
				w.want("in", tt.want)
			})
		})
	}
}

func TestNewLeaderGoesOnWhereTheOldOneWas(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{AckWait: 10 * time.Second})
		w.pull("c", "in", `2`)
		m := w.want("in", "m1", "m2")
		w.ack(m[0], "", "")
		w.pass(time.Second)
		w.e.Lead(false)
		w.e.Lead(true)
		w.ack(m[0], "", "sync") // again, because the answer was lost
		w.want("sync", "")
		w.pull("c", "in", `{"batch":5,"expires":100000000000}`)
		w.want("in", "m3")
		w.pass(10 * time.Second)
		w.want("in", "m2", "m3")
	})
}

func TestAnAcknowledgementThatMeetsAConsumerOnItsWayOutIsForTheNextLeader(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in", "1")
		m := w.want("in", "m1")
		w.pass(time.Second)
		a, _ := parseAck([]byte(m[0].reply))
		found := w.e.readerByName("A", a.stream, a.consumer) // and just then the lead goes
		w.e.Lead(false)
		if found.acknowledge(&a, []byte("sync"), nil) || w.e.Ack("A", []byte(m[0].reply), []byte("sync"), nil) {
			t.Error("taken by who doesn't lead any more")
		}
		w.want("sync")
		w.e.Lead(true)
		w.ack(m[0], "", "sync")
		w.want("sync", "")
	})
}

func TestUnheardMessageGoesToSomebodyElse(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{})
		w.listen("deaf in.1", true)
		w.pull("c", "in.1", `{"batch":5,"expires":100000000000}`)
		w.pull("c", "in.2", `{"batch":5,"expires":100000000000}`)
		w.publish("a")
		w.want("in.2", "m1")
		w.listen("in.2", false)
		w.publish("a")
		if i := w.info("c"); i.NumWaiting != 0 || i.NumPending != 1 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestMissingMessagesAreDropped(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{AckWait: time.Second})
		w.pull("c", "in", "3")
		w.want("in", "m1", "m2", "m3")
		w.remove(1)
		w.remove(3)
		w.pass(2 * time.Second)
		w.pull("c", "in", `{"batch":5,"expires":1000000}`)
		w.pass(100 * time.Millisecond)
		w.want("in", "m2", "408 Request Timeout")
		if i := w.info("c"); i.NumAckPending != 1 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestFailedProposalFallsBack(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{})
		w.mu.Lock()
		w.refuse = fmt.Errorf("disk full")
		w.mu.Unlock()
		w.pull("c", "in", `{"batch":5,"expires":100000000000}`)
		m := w.want("in", "m1")
		w.ack(m[0], "", "sync")
		w.want("sync")
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		w.pass(time.Second)
		m = w.want("in", "m1")
		w.ack(m[0], "", "sync")
		w.want("sync", "")
	})
}

func TestFilteredConsumersAreWokenByTheirSubjects(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for i := range 50 {
			name := fmt.Sprintf("c%d", i)
			w.consumer(name, topics.ConsumerConfig{FilterSubject: fmt.Sprintf("o.%d.>", i)})
			w.pull(name, "in."+name, `{"batch":5,"expires":100000000000}`)
		}
		w.consumer("lit", topics.ConsumerConfig{FilterSubjects: []string{"o.7.x", "z"}})
		w.pull("lit", "in.lit", `{"batch":5,"expires":100000000000}`)
		synctest.Wait()
		before := w.topic.reads.Load()
		w.publish("o.7.x")
		w.want("in.c7", "m1")
		w.want("in.lit", "m1")
		if reads := w.topic.reads.Load() - before; reads > 8 {
			t.Errorf("one message made %d reads", reads)
		}
		w.publish("z", "o.49.k", "o.7.y")
		w.want("in.c7", "m4")
		w.want("in.c49", "m3")
		w.want("in.lit", "m2")
	})
}
