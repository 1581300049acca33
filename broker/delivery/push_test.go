package delivery

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldmq/herald/topics"
)

func TestPushFollowsInterest(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", AckWait: time.Second})
		w.want("d")
		if w.info("c").PushBound {
			t.Error("bound without a subscriber")
		}
		w.listen("d", true)
		m := w.want("d", "m1")
		if m[0].subject != "a" || !strings.HasPrefix(m[0].reply, "$JS.ACK.S.c.1.1.1.") {
			t.Errorf("sent %+v", m[0])
		}
		if !w.info("c").PushBound {
			t.Error("not bound")
		}
		w.listen("d", false)
		w.publish("b")
		w.pass(2 * time.Second)
		w.want("d")
		w.listen("d", true)
		w.want("d", "m1", "m2")
	})
}

func TestPushDeliverGroup(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", DeliverGroup: "g"})
		w.listen("d", true) // not of the group
		w.pass(time.Second)
		w.want("d")
		w.listen("d g", true)
		w.pass(time.Second)
		w.want("d", "m1")
		w.listen("d g", false)
		w.publish("b")
		w.want("d")
	})
}

func TestPushHeartbeats(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", Heartbeat: time.Second, AckPolicy: topics.AckNone})
		w.listen("d", true)
		w.pass(2500 * time.Millisecond)
		w.want("d", "100 Idle Heartbeat", "100 Idle Heartbeat")
		w.publish("a", "b")
		w.want("d", "m1", "m2")
		w.pass(1100 * time.Millisecond)
		got := w.want("d", "100 Idle Heartbeat")
		if want := "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n"; got[0].header != want {
			t.Errorf("header %q, want %q", got[0].header, want)
		}
		w.listen("d", false)
		w.pass(5 * time.Second)
		w.want("d")
	})
}

func TestPushFlowControl(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", FlowControl: true, Heartbeat: time.Second, AckPolicy: topics.AckNone})
		w.listen("d", true)
		synctest.Wait()
		w.topic.mu.Lock()
		for range 6 {
			seq := topics.Sequence(len(w.topic.msgs) + 1)
			w.topic.msgs = append(w.topic.msgs, topics.Message{Sequence: seq, Subject: "a", Payload: make([]byte, 900<<10)})
		}
		w.topic.mu.Unlock()
		w.e.Grown([]topics.TopicID{7})
		got := w.take("d")
		var fc string
		n := 0
		for _, s := range got {
			if s.status() == "100 FlowControl Request" {
				fc = s.reply
			} else {
				n++
			}
		}
		if n != 3 || !strings.HasPrefix(fc, "$JS.FC.S.c.") {
			t.Fatalf("%d messages and flow control %q", n, fc)
		}
		w.pass(1500 * time.Millisecond)
		beat := w.want("d", "100 Idle Heartbeat")
		if !strings.Contains(beat[0].header, "Nats-Consumer-Stalled: "+fc+"\r\n") {
			t.Errorf("heartbeat %q", beat[0].header)
		}
		w.e.FlowControl("A", []byte("$JS.FC.S.c.other"))
		if got := w.take("d"); len(got) != 0 {
			t.Errorf("a foreign answer opened the window: %q", brief(got))
		}
		w.e.FlowControl("A", []byte(fc))
		if got := w.take("d"); len(got) < 3 {
			t.Errorf("after flow control: %d", len(got))
		}
	})
}

func TestFlowControlAcknowledges(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{
			DeliverSubject: "d", FlowControl: true, Heartbeat: time.Second, AckPolicy: topics.AckFlowControl, MaxAckPending: 10,
		})
		w.listen("d", true)
		synctest.Wait()
		w.topic.mu.Lock()
		w.topic.msgs = append(w.topic.msgs, topics.Message{Sequence: 1, Subject: "a", Payload: make([]byte, 1500<<10)})
		w.topic.mu.Unlock()
		w.e.Grown([]topics.TopicID{7})
		got := w.take("d")
		if len(got) != 2 {
			t.Fatalf("sent %d", len(got))
		}
		w.e.FlowControl("A", []byte(got[1].reply))
		if i := w.info("c"); i.NumAckPending != 0 || i.AckFloor.Stream != 1 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestHeadersOnly(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		w.topic.msgs[1].Header = []byte("NATS/1.0\r\nK: v\r\n\r\n")
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", HeadersOnly: true})
		w.listen("d", true)
		got := w.take("d")
		if len(got) != 2 || got[0].header != "NATS/1.0\r\nNats-Msg-Size: 2\r\n\r\n" || got[0].payload != "" ||
			got[1].header != "NATS/1.0\r\nK: v\r\nNats-Msg-Size: 2\r\n\r\n" {
			t.Errorf("got %+v", got)
		}
	})
}

func TestRateLimit(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", RateLimit: 8 * 1000, AckPolicy: topics.AckNone}) // 1000 bytes/s
		for range 100 {
			w.publish("a")
		}
		w.listen("d", true)
		w.pass(2 * time.Second)
		got := w.take("d")
		size := 0
		for _, s := range got {
			size += len(s.subject) + len(s.reply) + len(s.payload)
		}
		if size < 1500 || size > 2400 {
			t.Errorf("%d bytes in 2 s", size)
		}
	})
}

func TestReplayOriginal(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.pass(2 * time.Second)
		w.publish("a")
		w.pass(3 * time.Second)
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", ReplayPolicy: topics.ReplayOriginal, AckPolicy: topics.AckNone})
		start := time.Now()
		w.listen("d", true)
		w.pass(10 * time.Second)
		w.publish("a", "a")
		got := w.want("d", "m1", "m2", "m3", "m4", "m5")
		for i, want := range []time.Duration{0, 2 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second} {
			if at := got[i].at.Sub(start); at != want {
				t.Errorf("message %d after %v, want %v", i+1, at, want)
			}
		}
	})
}

func TestLastPerSubjectThenLive(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("k.1", "k.2", "k.1", "k.3", "k.2")
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", DeliverPolicy: topics.DeliverLastPerSubject, FilterSubject: "k.*", AckPolicy: topics.AckNone})
		w.listen("d", true)
		got := w.want("d", "m3", "m4", "m5")
		var left []string
		for _, s := range got {
			left = append(left, s.reply[strings.LastIndexByte(s.reply, '.')+1:])
		}
		if !slices.Equal(left, []string{"2", "1", "0"}) {
			t.Errorf("pending %q", left)
		}
		w.publish("x", "k.1")
		w.want("d", "m7")
	})
}

func TestPauseAndResume(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{DeliverSubject: "d", Heartbeat: time.Second})
		w.listen("d", true)
		synctest.Wait()
		w.topic.mu.Lock()
		w.topic.consumers["c"].Pause(topics.Nanos(time.Now().Add(3500 * time.Millisecond).UnixNano()))
		w.topic.mu.Unlock()
		w.e.ConsumerChanged(7, "c", Updated)
		w.publish("a")
		if i := w.info("c"); !i.Paused || i.PauseRemaining != 3500*time.Millisecond {
			t.Errorf("info %+v", i)
		}
		w.pass(3200 * time.Millisecond)
		w.want("d", "100 Idle Heartbeat", "100 Idle Heartbeat", "100 Idle Heartbeat")
		w.pass(time.Second)
		w.want("d", "m1")
	})
}

func TestReset(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in", `{"batch":10,"expires":100000000000}`)
		w.want("in", "m1", "m2", "m3")
		w.topic.mu.Lock() // before the deliveries are recorded
		w.topic.consumers["c"].Reset(2)
		w.topic.mu.Unlock()
		w.e.ConsumerChanged(7, "c", Updated)
		w.want("in", "m2", "m3")
		w.pass(time.Second)
		if c := w.topic.Consumer("c"); c.NumAckPending() != 2 || c.Delivered().Stream != 3 {
			t.Errorf("replicated copy: %d pending, delivered %+v", c.NumAckPending(), c.Delivered())
		}
	})
}

func TestPurgeTrims(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a", "a", "a")
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in", `2`)
		w.want("in", "m1", "m2")
		w.remove(1)
		w.remove(2)
		w.topic.mu.Lock()
		w.topic.consumers["c"].Trim(3)
		w.topic.mu.Unlock()
		if i := w.info("c"); i.NumAckPending != 0 || i.AckFloor.Stream != 2 || i.NumPending != 1 {
			t.Errorf("info %+v", i)
		}
	})
}

func TestUnusedConsumersAreDeleted(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("pull", topics.ConsumerConfig{InactiveThreshold: 10 * time.Second})
		w.consumer("push", topics.ConsumerConfig{InactiveThreshold: 10 * time.Second, DeliverSubject: "d"})
		w.consumer("durable", topics.ConsumerConfig{})
		w.listen("d", true)
		w.pass(8 * time.Second)
		w.pull("pull", "in", `{"expires":5000000000}`)
		w.pass(12 * time.Second)
		gone := func() []string {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.Clone(w.deleted)
		}
		if g := gone(); len(g) != 0 {
			t.Fatalf("deleted %q", g)
		}
		w.pass(4 * time.Second)
		if g := gone(); !slices.Equal(g, []string{"pull"}) {
			t.Fatalf("deleted %q", g)
		}
		w.e.ConsumerChanged(7, "pull", Deleted)
		w.topic.mu.Lock()
		delete(w.topic.consumers, "pull")
		w.topic.mu.Unlock()
		w.listen("d", false)
		w.pass(11 * time.Second)
		if g := gone(); !slices.Equal(g, []string{"pull", "push"}) {
			t.Fatalf("deleted %q", g)
		}
	})
}

func TestPinnedClient(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "pinned_client", PriorityTimeout: 10 * time.Second})
		w.pull("c", "in.1", `{"group":"g","batch":2,"expires":100000000000}`)
		w.pull("c", "in.2", `{"group":"g","batch":2,"expires":100000000000}`)
		w.publish("a", "a", "a")
		got := w.want("in.1", "m1", "m2")
		pin := strings.TrimSuffix(strings.TrimPrefix(got[0].header, "NATS/1.0\r\nNats-Pin-Id: "), "\r\n\r\n")
		if i := w.info("c"); i.PinnedClientID != pin || pin == "" || i.Group != "g" {
			t.Fatalf("pinned to %q, header %q", i.PinnedClientID, got[0].header)
		}
		w.want("in.2")
		w.pull("c", "in.3", `{"group":"g","id":"wrong"}`)
		w.want("in.3", "423 Nats-Wrong-Pin-Id")
		w.pull("c", "in.1", fmt.Sprintf(`{"group":"g","id":%q,"batch":5,"expires":100000000000}`, pin))
		w.want("in.1", "m3")
		if !w.e.Unpin(7, "c", "g") {
			t.Error("Unpin found nothing")
		}
		w.publish("a", "a")
		w.want("in.1", "423 Nats-Wrong-Pin-Id")
		w.want("in.2", "m4", "m5")
		if n := len(w.take("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.c")); n != 1 {
			t.Errorf("%d unpinned advisories", n)
		}
		if n := len(w.take("$JS.EVENT.ADVISORY.CONSUMER.PINNED.S.c")); n != 2 {
			t.Errorf("%d pinned advisories", n)
		}
		w.pass(11 * time.Second) // the second client doesn't pull again
		if i := w.info("c"); i.PinnedClientID != "" {
			t.Errorf("still pinned to %q", i.PinnedClientID)
		}
	})
}

func TestOverflow(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "overflow"})
		w.pull("c", "in", `{"group":"g","batch":2,"min_pending":3,"expires":100000000000}`)
		w.publish("a")
		w.publish("a")
		w.want("in")
		w.publish("a")
		w.want("in", "m1")
		w.pull("c", "in.2", `{"group":"g","batch":2,"min_ack_pending":2,"expires":100000000000}`)
		w.want("in.2")
		w.pull("c", "in.3", `{"group":"g","expires":100000000000}`)
		w.want("in.3", "m2")
		w.want("in.2", "m3")
	})
}

func TestPrioritized(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.consumer("c", topics.ConsumerConfig{PriorityGroups: []string{"g"}, PriorityPolicy: "prioritized"})
		w.pull("c", "in.5", `{"group":"g","batch":2,"priority":5,"expires":100000000000}`)
		w.pull("c", "in.1", `{"group":"g","batch":2,"priority":1,"expires":100000000000}`)
		w.publish("a", "a", "a")
		w.want("in.1", "m1", "m2")
		w.want("in.5", "m3")
	})
}

func TestAckMetrics(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{SampleFrequency: "100%"})
		w.pull("c", "in", "")
		m := w.want("in", "m1")
		w.pass(time.Second)
		w.ack(m[0], "", "")
		got := w.take("$JS.EVENT.METRIC.CONSUMER.ACK.S.c")
		if len(got) != 1 || !strings.Contains(got[0].payload, `"ack_time":1000000000,"deliveries":1`) ||
			!strings.Contains(got[0].payload, `"type":"io.nats.jetstream.metric.v1.consumer_ack"`) {
			t.Errorf("metrics %+v", got)
		}
	})
}

func TestIdleEngineHasNoTimer(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.consumer("c", topics.ConsumerConfig{AckWait: time.Second})
		w.pull("c", "in", `{"batch":1}`)
		m := w.want("in", "m1")
		w.ack(m[0], "", "")
		w.pass(time.Minute)
		synctest.Wait()
		w.e.clock.mu.Lock()
		n := len(w.e.clock.heap)
		w.e.clock.mu.Unlock()
		w.e.recorder.mu.Lock()
		at := w.e.recorder.deadline
		w.e.recorder.mu.Unlock()
		if n != 0 || at != 0 {
			t.Errorf("%d deadlines, recorder at %d", n, at)
		}
	})
}

func TestRecordsRideTogether(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		for range 1000 {
			w.publish("a")
		}
		w.consumer("c", topics.ConsumerConfig{})
		w.pull("c", "in", `{"batch":1000,"expires":100000000000}`)
		for _, s := range w.take("in") {
			w.ack(s, "", "")
		}
		w.pass(time.Second)
		w.mu.Lock()
		n := w.submits
		w.mu.Unlock()
		if n > 4 {
			t.Errorf("%d records for 1000 deliveries and acks", n)
		}
		if c := w.topic.Consumer("c"); c.AckFloor().Stream != 1000 {
			t.Errorf("floor %+v", c.AckFloor())
		}
	})
}
