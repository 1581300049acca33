package consumer

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/heraldmq/herald/topics"
)

func fullConfig() topics.ConsumerConfig {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return topics.ConsumerConfig{
		Durable: "d", Name: "d", Description: "what", DeliverPolicy: topics.DeliverByStartTime, OptStartSeq: 7, OptStartTime: &at,
		AckPolicy: topics.AckExplicit, AckWait: time.Second, MaxDeliver: -1, BackOff: []time.Duration{1, 2},
		FilterSubjects: []string{"a.>", "b"}, FilterSubject: "x", ReplayPolicy: topics.ReplayOriginal, RateLimit: 1 << 40,
		SampleFrequency: "10%", MaxWaiting: 3, MaxAckPending: -1, FlowControl: true, HeadersOnly: true, MaxRequestBatch: 1,
		MaxRequestExpires: 2, MaxRequestMaxBytes: 3, DeliverSubject: "s", DeliverGroup: "g", Heartbeat: 4, InactiveThreshold: 5,
		Replicas: 3, MemoryStorage: true, Direct: true, Sourcing: true, Metadata: map[string]string{"k": "v", "": "e"}, PauseUntil: &at,
		PriorityGroups: []string{"p"}, PriorityPolicy: "overflow", PriorityTimeout: 6,
	}
}

func TestConfigKeepsEveryField(t *testing.T) {
	cfg := fullConfig()
	v := reflect.ValueOf(cfg)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() {
			t.Errorf("the test sets no %s", name)
		}
		if !slices.Contains(configFields, name) {
			t.Errorf("configFields has no %s: append it", name)
		}
	}
	got, err := parseConfig(string(appendConfig(nil, &cfg)))
	if err != nil || !reflect.DeepEqual(got, cfg) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, cfg)
	}
}

// The numbers of the fields are a format.
func TestConfigFieldsAreNeverRenumbered(t *testing.T) {
	want := "Durable Name Description DeliverPolicy OptStartSeq OptStartTime AckPolicy AckWait MaxDeliver BackOff " +
		"FilterSubject FilterSubjects ReplayPolicy RateLimit SampleFrequency MaxWaiting MaxAckPending FlowControl HeadersOnly " +
		"MaxRequestBatch MaxRequestExpires MaxRequestMaxBytes DeliverSubject DeliverGroup Heartbeat InactiveThreshold Replicas " +
		"MemoryStorage Direct Sourcing Metadata PauseUntil PriorityGroups PriorityPolicy PriorityTimeout"
	if got := strings.Join(configFields, " "); !strings.HasPrefix(got, want) {
		t.Errorf("fields %q", got)
	}
}

func TestUntouchedConsumerIsSmall(t *testing.T) {
	cfg := topics.ConsumerConfig{
		Durable: "worker", Name: "worker", DeliverPolicy: topics.DeliverAll, AckPolicy: topics.AckExplicit, AckWait: 30 * time.Second,
		MaxDeliver: -1, ReplayPolicy: topics.ReplayInstant, MaxWaiting: 512, MaxAckPending: 1000,
	}
	c := New(1, "worker", cfg, 1, &fakeLog{})
	size := int(unsafe.Sizeof(*c)) + len(c.name) + len(c.config)
	if c.pending != nil || c.initial != nil || c.live != nil || size > 330 {
		t.Errorf("a consumer takes %d bytes", size)
	}
}

func TestResetVoidsOlderRecords(t *testing.T) {
	l := &fakeLog{}
	for range 10 {
		l.publish("a")
	}
	replica := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit}, 1, l)
	live := replica.Clone()
	live.Lead(l)
	for range 10 {
		s, _ := live.Next(1)
		live.Deliver(s, 1)
	}
	live.Ack(1, 2)
	if got := replica.Reset(5); got != 5 {
		t.Errorf("Reset(5) = %d", got)
	}
	for _, r := range live.Records(nil) {
		apply := replica.ApplyAcks
		if r.Kind == topics.RecordDelivered {
			apply = replica.ApplyDelivered
		}
		if err := apply(r.Body, func(topics.Sequence) { t.Error("a void record acknowledged something") }); err != nil {
			t.Fatal(err)
		}
	}
	if replica.NumAckPending() != 0 || replica.Delivered().Stream != 4 {
		t.Errorf("pending %d, delivered %+v", replica.NumAckPending(), replica.Delivered())
	}
	live = replica.Clone()
	live.Lead(l)
	if s, ok := live.Next(3); !ok || s != 5 || live.NumPending() != 6 {
		t.Errorf("Next() = %d, %t; %d pending", s, ok, live.NumPending())
	}
	if got := replica.Reset(0); got != 5 {
		t.Errorf("Reset(0) = %d, want the sequence after the ack floor", got)
	}
}

func TestPauseAndUpdate(t *testing.T) {
	c := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit, AckWait: time.Second}, 1, &fakeLog{subjects: []string{"a", "b"}})
	c.Lead(&fakeLog{subjects: []string{"a", "b"}})
	c.Pause(100)
	if _, ok := c.Next(99); ok {
		t.Error("a paused consumer delivers")
	}
	c.Update(topics.ConsumerConfig{AckPolicy: topics.AckExplicit, AckWait: 2 * time.Second, FilterSubject: "b"})
	if c.PausedUntil() != 100 || c.Config().PauseUntil.UnixNano() != 100 {
		t.Error("an update ended the pause")
	}
	if s, ok := c.Next(100); !ok || s != 2 || c.NumPending() != 1 {
		t.Errorf("Next() = %d, %t; %d pending", s, ok, c.NumPending())
	}
	c.Pause(0)
	if c.Config().PauseUntil != nil {
		t.Error("still paused")
	}
}

func TestRunsAreShort(t *testing.T) {
	l := &fakeLog{}
	for range 1000 {
		l.publish("a")
	}
	c := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit}, 1, l)
	c.Lead(l)
	for s := topics.Sequence(1); s <= 1000; s++ {
		c.Deliver(s, 1_700_000_000_000_000_000)
	}
	for s := topics.Sequence(1); s <= 1000; s++ {
		c.Ack(s, 1_700_000_000_000_000_000+topics.Nanos(s))
	}
	for _, r := range c.Records(nil) {
		if len(r.Body) > 32 {
			t.Errorf("record %d of %d bytes", r.Kind, len(r.Body))
		}
	}
}

func TestLongWindowStaysSmall(t *testing.T) {
	const n = 100_000
	l := &fakeLog{}
	c := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit, MaxAckPending: -1}, 1, l)
	c.Lead(l)
	for s := topics.Sequence(1); s <= n; s++ {
		c.Deliver(s, topics.Nanos(s))
		if s > 1 {
			c.Ack(s, topics.Nanos(s)) // 1 is stuck
		}
	}
	if len(c.pending.entries) > 200 || len(c.live.schedule.alarms) > 200 || c.AckFloor().Stream != 0 {
		t.Errorf("window of %d, %d alarms for one pending message", len(c.pending.entries), len(c.live.schedule.alarms))
	}
	if at, ok := c.NextDeadline(); !ok || at != 1+topics.Nanos(defaultAckWait) {
		t.Errorf("NextDeadline() = %d, %t", at, ok)
	}
}

func FuzzApply(f *testing.F) {
	l := &fakeLog{}
	for range 20 {
		l.publish("a")
	}
	c := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit}, 1, l)
	c.Lead(l)
	for range 10 {
		s, _ := c.Next(1)
		c.Deliver(s, 1)
	}
	c.Ack(3, 2)
	c.Nak(4, time.Second, 2)
	c.Term(5, 3)
	for _, r := range c.Records(nil) {
		f.Add(r.Body, r.Kind == topics.RecordAcked)
	}
	f.Fuzz(func(t *testing.T, body []byte, acks bool) {
		c := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit}, 1, l)
		for s := topics.Sequence(1); s <= 10; s++ {
			c.deliver(s, 1)
		}
		apply := c.ApplyDelivered
		if acks {
			apply = c.ApplyAcks
		}
		if err := apply(body, func(topics.Sequence) {}); err != nil && !errors.Is(err, ErrBadRecord) {
			t.Fatal(err)
		}
		data, err := c.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Unmarshal(data); err != nil || !back.Equal(c) {
			t.Fatalf("flushed state can't be read back: %v", err)
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	l := &fakeLog{subjects: []string{"a.1", "a.2", "b"}}
	for _, p := range []topics.DeliverPolicy{topics.DeliverAll, topics.DeliverLastPerSubject} {
		cfg := fullConfig()
		cfg.DeliverPolicy, cfg.FilterSubject, cfg.FilterSubjects = p, "", nil
		c := New(1, "c", cfg, 1, l)
		c.deliver(1, 5)
		b, err := c.AppendBinary(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Unmarshal(data)
		if err != nil {
			if !errors.Is(err, ErrBadRecord) {
				t.Fatal(err)
			}
			return
		}
		again, err := c.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Unmarshal(again); err != nil || !back.Equal(c) {
			t.Fatalf("read back: %v", err)
		}
	})
}

func TestASnapshotBringsAConsumerBack(t *testing.T) {
	cfg := topics.ConsumerConfig{Name: "c", AckPolicy: topics.AckExplicit, AckWait: time.Minute, MaxDeliver: 5}
	want := Snapshot{
		Delivered: Position{Consumer: 30, Stream: 25}, Floor: Position{Consumer: 10, Stream: 10},
		Pending: []PendingMessage{{12, 11, 1000, 1}, {20, 18, 2000, 3}},
	}
	c, err := Restored(7, "c", cfg, 5, want)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Snapshot(100); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v came back as %+v", want, got)
	}
	if c.NumAckPending() != 2 || c.NumRedelivered() != 1 {
		t.Errorf("%d pending, %d redelivered", c.NumAckPending(), c.NumRedelivered())
	}
	// What lies behind the backup's last message isn't part of it.
	if got := c.Snapshot(15); got.Delivered.Stream != 15 || len(got.Pending) != 1 {
		t.Errorf("up to 15: %+v", got)
	}
	for what, s := range map[string]Snapshot{
		"acknowledged before delivered": {Delivered: Position{Stream: 1}, Floor: Position{Stream: 2}},
		"pending below the floor":       {Delivered: Position{Consumer: 9, Stream: 9}, Floor: Position{Stream: 5}, Pending: []PendingMessage{{Sequence: 5}}},
		"pending not delivered":         {Delivered: Position{Consumer: 9, Stream: 9}, Pending: []PendingMessage{{Sequence: 10}}},
		"pending twice":                 {Delivered: Position{Consumer: 9, Stream: 9}, Pending: []PendingMessage{{Sequence: 3}, {Sequence: 3}}},
	} {
		if _, err := Restored(7, "c", cfg, 5, s); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
