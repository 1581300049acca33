package store

import (
	"strings"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
)

// header makes a header block of "key: value" lines.
func header(lines ...string) string { return "NATS/1.0\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" }

func TestPublishChecks(t *testing.T) {
	for name, c := range map[string]struct {
		cfg   topics.Config
		prior []topics.Publish
		p     topics.Publish
		code  uint16 // 0: stored
		text  string
		dup   topics.Sequence
	}{
		"plain":             {p: pub(1, "a", "", "x")},
		"no topic":          {p: pub(9, "a", "", "x"), code: 10059, text: "stream not found"},
		"sealed":            {cfg: topics.Config{Sealed: true}, p: pub(1, "a", "", "x"), code: 10109, text: "invalid operation on sealed stream"},
		"too big":           {cfg: topics.Config{MaxMsgSize: 3}, p: pub(1, "a", "", "four"), code: 10054, text: "message size exceeds maximum allowed"},
		"header too big":    {p: pub(1, "a", header("A: "+strings.Repeat("x", 70000)), ""), code: 10097, text: "header size exceeds maximum allowed of 64k"},
		"expected topic":    {p: pub(1, "a", header("Nats-Expected-Stream: U"), ""), code: 10060, text: "expected stream does not match"},
		"right topic":       {p: pub(1, "a", header("Nats-Expected-Stream: T"), "")},
		"last":              {prior: []topics.Publish{pub(1, "a", "", "")}, p: pub(1, "a", header("Nats-Expected-Last-Sequence: 4"), ""), code: 10071, text: "wrong last sequence: 1"},
		"last not a number": {p: pub(1, "a", header("Nats-Expected-Last-Sequence: x"), ""), code: 10071, text: "wrong last sequence: 0"},
		"last of subject":   {prior: []topics.Publish{pub(1, "a", "", ""), pub(1, "b", "", "")}, p: pub(1, "a", header("Nats-Expected-Last-Subject-Sequence: 2"), ""), code: 10071, text: "wrong last sequence: 1"},
		"first of subject":  {prior: []topics.Publish{pub(1, "b", "", "")}, p: pub(1, "a", header("Nats-Expected-Last-Subject-Sequence: 0"), "")},
		"last of another": {
			prior: []topics.Publish{pub(1, "b.1", "", ""), pub(1, "b.2", "", "")},
			p:     pub(1, "a", header("Nats-Expected-Last-Subject-Sequence: 1", "Nats-Expected-Last-Subject-Sequence-Subject: b.*"), ""), code: 10071, text: "wrong last sequence: 2",
		},
		"another without sequence": {p: pub(1, "a", header("Nats-Expected-Last-Subject-Sequence-Subject: b"), ""), code: 10193, text: "missing sequence for expected last sequence per subject"},
		"last id": {
			prior: []topics.Publish{pub(1, "a", header("Nats-Msg-Id: one"), "")},
			p:     pub(1, "a", header("Nats-Expected-Last-Msg-Id: two"), ""), code: 10070, text: "wrong last msg ID: one",
		},
		"duplicate before expected": {
			prior: []topics.Publish{pub(1, "a", header("Nats-Msg-Id: one"), "")},
			p:     pub(1, "a", header("Nats-Msg-Id: one", "Nats-Expected-Last-Sequence: 0"), ""), dup: 1,
		},
		"rollup denied":  {p: pub(1, "a", header("Nats-Rollup: sub"), ""), code: 10111, text: "rollup not permitted"},
		"rollup invalid": {cfg: topics.Config{AllowRollup: true}, p: pub(1, "a", header("Nats-Rollup: x"), ""), code: 10111, text: `rollup value invalid: "x"`},
		"ttl disabled":   {p: pub(1, "a", header("Nats-TTL: 1s"), ""), code: 10166, text: "per-message TTL is disabled"},
		"ttl invalid":    {cfg: topics.Config{AllowMsgTTL: true}, p: pub(1, "a", header("Nats-TTL: 10ms"), ""), code: 10165, text: "invalid per-message TTL"},
		"max msgs":       {cfg: topics.Config{MaxMsgs: 1, Discard: topics.DiscardNew}, prior: []topics.Publish{pub(1, "a", "", "")}, p: pub(1, "a", "", ""), code: 10077, text: "maximum messages exceeded"},
		"max bytes":      {cfg: topics.Config{MaxBytes: 40, Discard: topics.DiscardNew}, prior: []topics.Publish{pub(1, "a", "", "")}, p: pub(1, "a", "", ""), code: 10077, text: "maximum bytes exceeded"},
		"max per subject": {
			cfg: topics.Config{MaxMsgsPer: 1, Discard: topics.DiscardNew, DiscardNewPer: true}, prior: []topics.Publish{pub(1, "a", "", "")},
			p: pub(1, "a", "", ""), code: 10077, text: "maximum messages per subject exceeded",
		},
		"replaced in a full topic": {cfg: topics.Config{MaxMsgs: 1, MaxMsgsPer: 1, Discard: topics.DiscardNew}, prior: []topics.Publish{pub(1, "a", "", "")}, p: pub(1, "a", "", "")},
		"increment disabled":       {p: pub(1, "a", header("Nats-Incr: 1"), ""), code: 10168, text: "message counters is disabled"},
		"increment missing":        {cfg: topics.Config{AllowMsgCounter: true}, p: pub(1, "a", "", ""), code: 10169, text: "message counter increment is missing"},
		"increment with payload":   {cfg: topics.Config{AllowMsgCounter: true}, p: pub(1, "a", header("Nats-Incr: 1"), "x"), code: 10170, text: "message counter has payload"},
		"increment invalid":        {cfg: topics.Config{AllowMsgCounter: true}, p: pub(1, "a", header("Nats-Incr: one"), ""), code: 10171, text: "message counter increment is invalid"},
		"schedule disabled":        {p: pub(1, "a", header("Nats-Schedule: @at 2030-01-01T00:00:00Z"), ""), code: 10188, text: "message schedules is disabled"},
		"source header":            {p: pub(1, "a", header("Nats-Stream-Source: S 1"), ""), code: 10227, text: "message stream source header is not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeeder(t, Options{})
			c.cfg.Name, c.cfg.Duplicates = "T", time.Minute
			f.do(func() { _ = f.s.CreateTopic(1, "A", c.cfg, f.now) })
			for _, r := range f.publish(c.prior...) {
				if r.Fault != nil {
					t.Fatal(r.Fault)
				}
			}
			r := f.publish(c.p)[0]
			switch {
			case c.dup != 0:
				if !r.Duplicate || r.Sequence != c.dup || r.Fault != nil {
					t.Errorf("%+v, want a duplicate of %d", r, c.dup)
				}
			case c.code == 0:
				if r.Fault != nil || r.Sequence != topics.Sequence(len(c.prior)+1) {
					t.Errorf("%+v (%v)", r, r.Fault)
				}
			case r.Fault == nil || r.Fault.ErrCode != c.code || r.Fault.Text != c.text || r.Sequence != 0:
				t.Errorf("%+v, want %d %q", r, c.code, c.text)
			}
		})
	}
}

func TestCounter(t *testing.T) {
	f := newFeeder(t, Options{FlushInterval: time.Hour})
	f.do(func() { _ = f.s.CreateTopic(1, "A", topics.Config{Name: "T", AllowMsgCounter: true}, f.now) })
	total := ""
	for i, incr := range []string{"1", "+41", "-50", "100000000000000000000"} {
		if i == 2 {
			f.do(func() {})
			flushNow(t, f.s)
		}
		r := f.publish(pub(1, "n", header("Nats-Incr: "+incr), ""))[0]
		if r.Fault != nil {
			t.Fatal(r.Fault)
		}
		total = r.Value
	}
	m, err := f.s.Topic(1).Load(f.s.Topic(1).LastFor("n"))
	if err != nil || total != "99999999999999999992" || string(m.Payload) != `{"val":"99999999999999999992"}` {
		t.Errorf("total %s, message %s, %v", total, m.Payload, err)
	}
}

func TestDeleteMarkers(t *testing.T) {
	f := newFeeder(t, Options{})
	f.do(func() {
		_ = f.s.CreateTopic(1, "A", topics.Config{Name: "T", AllowMsgTTL: true, AllowRollup: true, MaxAge: 10 * time.Second, SubjectDeleteMarkerTTL: 5 * time.Second}, f.now)
	})
	f.publish(pub(1, "gone", "", "x"), pub(1, "kept", header("Nats-TTL: never"), "x"), pub(1, "short", header("Nats-TTL: 2"), "x"))
	tp := f.s.Topic(1)
	if at := tp.NextExpiry(); at != f.now+5*second { // the time to live is at least the marker's
		t.Errorf("next expiry in %v", time.Duration(at-f.now))
	}
	f.now += 10 * second
	f.do(func() { f.s.Expire(1) })
	msgs, _, err := tp.Read(nil, 0, 10, 0, nil)
	if err != nil || len(msgs) != 3 || msgs[0].Subject != "kept" {
		t.Fatalf("%+v, %v", msgs, err)
	}
	for _, m := range msgs[1:] {
		if fieldOf(m.Header, "Nats-Marker-Reason") != "MaxAge" || fieldOf(m.Header, "Nats-TTL") != "5s" || len(m.Payload) != 0 {
			t.Errorf("marker %q", m.Header)
		}
	}
	f.now += 5 * second
	f.do(func() { f.s.Expire(1) })
	if st := tp.State(); st.Messages != 1 || st.Last != 5 {
		t.Errorf("markers stay: %+v", st)
	}
	if at := tp.NextExpiry(); at != 0 {
		t.Errorf("something is still due at %d", at)
	}
}

func TestInterestWithoutConsumers(t *testing.T) {
	f := newFeeder(t, Options{})
	f.do(func() {
		_ = f.s.CreateTopic(1, "A", topics.Config{Name: "T", Retention: topics.RetainInterest, Duplicates: time.Minute}, f.now)
	})
	if r := f.publish(pub(1, "a", header("Nats-Msg-Id: 1"), ""), pub(1, "a", header("Nats-Msg-Id: 1"), "")); r[0].Sequence != 1 || !r[1].Duplicate {
		t.Errorf("%+v", r)
	}
	f.do(func() {
		_, fault := f.s.CreateConsumer(1, "c", topics.ConsumerConfig{Durable: "c", FilterSubject: "b", AckPolicy: topics.AckExplicit})
		if fault != nil {
			t.Error(fault)
		}
	})
	f.publish(pub(1, "b", "", ""), pub(1, "a", "", ""), pub(1, "b", "", ""))
	if st := f.s.Topic(1).State(); st.Messages != 2 || st.First != 2 || st.Last != 4 || st.Deleted != 1 {
		t.Errorf("%+v", st)
	}
	f.do(func() { f.s.DeleteConsumer(1, "c") })
	if st := f.s.Topic(1).State(); st.Messages != 0 || st.First != 5 {
		t.Errorf("%+v", st)
	}
}

func TestPublishAllocatesNothing(t *testing.T) {
	f := newFeeder(t, Options{FlushInterval: time.Hour, TailBytes: 1 << 30})
	f.do(func() { _ = f.s.CreateTopic(1, "A", topics.Config{Name: "T", MaxMsgs: 1000}, f.now) })
	entry := benchEntry(1000, 1, one)
	index := topics.Index(1)
	apply := func() { index++; applyAll(f.s, index, f.now, entry) }
	for range 10 {
		apply()
	}
	if n := testing.AllocsPerRun(100, apply); n > 1 {
		t.Errorf("%v allocations per 1000 messages", n)
	}
}
