package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"pgregory.net/rapid"
)

// byKey runs a live copy by key and its replica, and knows what has happened to each
// message. The key of a message is its subject; "none" is a message without one.
type byKey struct {
	log     *fakeLog
	live    *Consumer
	replica *Consumer
	now     topics.Nanos
	flying  map[topics.Sequence]bool // delivered, not dealt with
	done    map[topics.Sequence]bool // dealt with, or purged
	first   map[string]topics.Sequence
}

func (m *byKey) key(seq topics.Sequence) (string, bool) {
	k := m.log.subjects[seq-1]
	return k, k != "none"
}

func (m *byKey) lead() {
	m.live = m.replica.Clone()
	m.live.Lead(m.log)
	m.live.LeadByKey(true)
	for {
		seqs := m.live.Unlearned(nil, 2)
		if len(seqs) == 0 {
			return
		}
		for _, s := range seqs {
			k, has := m.key(s)
			m.live.Learn(s, k, has)
		}
	}
}

func (m *byKey) flush(t *rapid.T) {
	for _, r := range m.live.Records(nil) {
		apply := m.replica.ApplyAcks
		if r.Kind == topics.RecordDelivered {
			apply = m.replica.ApplyDelivered
		}
		if err := apply(r.Body, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !m.live.Equal(m.replica) {
		t.Fatalf("replica differs:\nlive    %s\nreplica %s", show(m.live), show(m.replica))
	}
	data, err := m.replica.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.replica, err = Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	if !m.live.Equal(m.replica) {
		t.Fatalf("flushed state differs:\nlive  %s\nflushed %s", show(m.live), show(m.replica))
	}
}

// step gives away the next message, or parks it.
func (m *byKey) step(t *rapid.T) (delivered bool) {
	seq, ok := m.live.Next(m.now)
	for _, x := range m.live.TakeExceeded() {
		if !m.live.Buries() {
			delete(m.flying, x.Sequence)
			m.done[x.Sequence] = true
		}
	}
	if !ok {
		return false
	}
	key, has := m.key(seq)
	_, attempts, pending := m.live.PendingAt(seq)
	if !pending && has && !m.live.Free(key) {
		m.live.Park(seq, key, m.now)
		return true
	}
	if has {
		for other := range m.flying {
			if k, _ := m.key(other); k == key && other != seq {
				t.Fatalf("%d and %d of key %s are in flight", other, seq, key)
			}
		}
		if seq < m.first[key] {
			t.Fatalf("%d of key %s comes after %d", seq, key, m.first[key])
		}
		m.first[key] = seq
	}
	d := m.live.Deliver(seq, m.now)
	if d.Attempt != attempts+1 {
		t.Fatalf("attempt %d of %d after %d", d.Attempt, seq, attempts)
	}
	if !pending {
		m.live.Learn(seq, key, has)
	}
	m.flying[seq] = true
	return true
}

func (m *byKey) pick(t *rapid.T) (topics.Sequence, bool) {
	var all []topics.Sequence
	for s := range m.flying {
		all = append(all, s)
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return rapid.SampledFrom(all).Draw(t, "in flight"), true
}

func (m *byKey) settled(seq topics.Sequence) {
	delete(m.flying, seq)
	m.done[seq] = true
}

// bury does a step of what the leader's engine does for dying messages: it begins a parcel,
// or ends the one under way.
func (m *byKey) bury(t *rapid.T) bool {
	m.flush(t) // the deliveries come first
	var ops LetterOps
	p, under := m.replica.Under()
	switch {
	case under && rapid.IntRange(0, 3).Draw(t, "refused") == 0:
		ops.TakeBack = p.Number
	case under:
		ops.GiveUp = p.Number
	default:
		p = Parcel{Number: m.replica.LastParcel() + 1, To: 9}
		m.live.EachDying(func(d Dying) bool {
			p.Messages = append(p.Messages, Letter{d.Sequence, d.Terminated, d.Reason})
			return true
		})
		if len(p.Messages) == 0 {
			return false
		}
		slices.SortFunc(p.Messages, func(a, b Letter) int { return int(a.Sequence) - int(b.Sequence) })
		p.Messages = p.Messages[:rapid.IntRange(1, len(p.Messages)).Draw(t, "letters")]
		ops.Begin = &p
	}
	body := m.live.AppendLetters(nil, m.now, ops)
	for range 2 { // it may come twice
		for _, c := range []*Consumer{m.live, m.replica} {
			if err := c.ApplyLetters(body, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if ops.GiveUp != 0 {
		for _, l := range p.Messages {
			m.settled(l.Sequence)
		}
	}
	m.flush(t)
	return true
}

// change makes the replica lead: what was in flight may come again.
func (m *byKey) change() {
	m.lead()
	m.flying = map[topics.Sequence]bool{}
	m.replica.pending.each(func(e *entry) bool {
		if e.attempts > 0 {
			m.flying[e.seq] = true
		}
		return true
	})
	for k, s := range m.first { // what was delivered and not recorded comes once more
		m.first[k] = min(s, m.replica.delivered.Stream)
	}
	m.replica.pending.each(func(e *entry) bool {
		k, _ := m.key(e.seq)
		m.first[k] = min(m.first[k], e.seq)
		return true
	})
}

func (m *byKey) actions() map[string]func(*rapid.T) {
	some := func(f func(topics.Sequence)) func(*rapid.T) {
		return func(t *rapid.T) {
			if s, ok := m.pick(t); ok {
				f(s)
			}
		}
	}
	return map[string]func(*rapid.T){
		"publish": func(t *rapid.T) {
			m.log.publish(rapid.SampledFrom([]string{"a", "a", "b", "c", "none"}).Draw(t, "key"))
		},
		"step": func(t *rapid.T) { m.step(t) }, "step2": func(t *rapid.T) { m.step(t) }, "step3": func(t *rapid.T) { m.step(t) },
		"ack": some(func(s topics.Sequence) { m.live.Ack(s, m.now); m.settled(s) }),
		"nak": some(func(s topics.Sequence) { m.live.Nak(s, time.Second, m.now) }),
		"term": some(func(s topics.Sequence) {
			if !m.live.Buries() {
				m.live.Term(s, m.now)
				m.settled(s)
				return
			}
			m.live.Terminate(s, "bad")
		}),
		"bury": func(t *rapid.T) { m.bury(t) },
		"purge": func(t *rapid.T) {
			first := topics.Sequence(rapid.IntRange(1, len(m.log.subjects)/2+1).Draw(t, "first"))
			m.flush(t)
			m.replica.Trim(first)
			m.live.Trim(first)
			for s := topics.Sequence(1); s < first; s++ {
				m.settled(s)
			}
		},
		"wait":   func(t *rapid.T) { m.now += topics.Nanos(rapid.IntRange(1, 12).Draw(t, "seconds")) * 1e9 },
		"flush":  m.flush,
		"change": func(t *rapid.T) { m.flush(t); m.change() },
		"die":    func(t *rapid.T) { m.change() }, // without having recorded
		"": func(t *rapid.T) {
			if most := int(m.live.rules.maxAckPending); m.live.NumAckPending() > most {
				t.Fatalf("%d pending, max_ack_pending is %d", m.live.NumAckPending(), most)
			}
			if k := m.live.live.keys; len(k.of) > m.live.NumAckPending() || len(k.line) > len(k.of) {
				t.Fatalf("%d keys of %d messages are remembered, %d are pending", len(k.line), len(k.of), m.live.NumAckPending())
			}
		},
	}
}

func TestOneInFlightForEachKeyInOrderAndNothingLost(t *testing.T) {
	for _, dead := range []string{"", "dead"} {
		t.Run(fmt.Sprintf("dead letters to %q", dead), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := topics.ConsumerConfig{
					AckPolicy: topics.AckExplicit, AckWait: 10 * time.Second, MaxAckPending: rapid.IntRange(1, 6).Draw(t, "max_ack_pending"),
					MaxDeliver: rapid.SampledFrom([]int{-1, 2}).Draw(t, "max_deliver"), Metadata: map[string]string{KeyOrder: "token:1", KeyDeadSubject: dead},
				}
				m := &byKey{
					log: &fakeLog{}, now: 1e9, flying: map[topics.Sequence]bool{}, done: map[topics.Sequence]bool{}, first: map[string]topics.Sequence{},
				}
				m.replica = New(1, "c", cfg, m.now, m.log)
				m.lead()
				t.Repeat(m.actions())
				m.drain(t)
			})
		})
	}
}

// drain has everything delivered and acknowledged.
func (m *byKey) drain(t *rapid.T) {
	for range 10 * (len(m.log.subjects) + 10) {
		for m.step(t) {
		}
		for s := range m.flying {
			if !m.live.Dies(s) {
				m.live.Ack(s, m.now)
				m.settled(s)
			}
		}
		for m.bury(t) {
		}
		if m.live.NumAckPending() == 0 && !m.live.HasNew() {
			break
		}
		m.now += 11e9
	}
	m.flush(t)
	for s := range m.log.subjects {
		if !m.done[topics.Sequence(s+1)] {
			t.Fatalf("message %d never came: %s", s+1, show(m.live))
		}
	}
	if m.live.NumAckPending() != 0 || len(m.live.live.keys.of) != 0 || len(m.live.live.keys.line) != 0 {
		t.Fatalf("something is left: %s, %v", show(m.live), m.live.live.keys)
	}
}

func TestWithoutItsKeyAConsumerLetsGoWhatItParked(t *testing.T) {
	l := &fakeLog{subjects: []string{"a", "a", "a"}}
	c := New(1, "c", topics.ConsumerConfig{AckPolicy: topics.AckExplicit, AckWait: time.Second, MaxAckPending: 10}, 1, l)
	live := c.Clone()
	live.Lead(l)
	live.LeadByKey(true)
	seq, _ := live.Next(1)
	live.Deliver(seq, 1)
	live.Learn(seq, "a", true)
	for range 2 {
		seq, _ = live.Next(1)
		live.Park(seq, "a", 1)
	}
	if n, keys := live.Parked(); n != 2 || keys != 1 {
		t.Fatalf("%d parked of %d keys", n, keys)
	}
	if _, ok := live.Next(1); ok {
		t.Fatal("a key is in flight twice")
	}
	live.LeadByKey(false)
	for want := topics.Sequence(2); want <= 3; want++ {
		seq, ok := live.Next(1)
		if d := live.Deliver(seq, 1); !ok || seq != want || d.Attempt != 1 {
			t.Errorf("delivered %+v, %t, want %d for the first time", d, ok, want)
		}
	}
}

func TestDyingMessagesStayPendingUntilBuried(t *testing.T) {
	l := &fakeLog{subjects: []string{"a", "b", "c"}}
	c := New(1, "c", topics.ConsumerConfig{
		AckPolicy: topics.AckExplicit, AckWait: time.Second, MaxDeliver: 1, Metadata: map[string]string{KeyDeadSubject: "dead"},
	}, 1, l)
	live := c.Clone()
	live.Lead(l)
	for range 3 {
		seq, _ := live.Next(1)
		live.Deliver(seq, 1)
	}
	if !live.Terminate(2, "bad") || live.Terminate(2, "worse") || live.Terminate(9, "none") {
		t.Error("Terminate does not tell whether it did something")
	}
	live.Ack(3, 2)
	now := topics.Nanos(2e9)
	live.Due(now)
	live.Due(now + 5e9)
	if got := live.TakeExceeded(); len(got) != 1 || got[0].Sequence != 1 {
		t.Errorf("exceeded %v, want 1 once", got)
	}
	if live.NumDying() != 2 || live.NumAckPending() != 2 || live.AckFloor().Stream != 0 {
		t.Errorf("%d dying, %d pending, floor %+v", live.NumDying(), live.NumAckPending(), live.AckFloor())
	}
	if live.Nak(2, 0, now) || live.InProgress(1, now) || live.HasRedelivery() {
		t.Error("a dying message can be asked for")
	}
	// The next leader finds them again: one too often delivered, the other once more.
	for _, r := range live.Records(nil) {
		apply := c.ApplyAcks
		if r.Kind == topics.RecordDelivered {
			apply = c.ApplyDelivered
		}
		if err := apply(r.Body, nil); err != nil {
			t.Fatal(err)
		}
	}
	next := c.Clone()
	next.Lead(l)
	next.Due(now)
	if next.NumDying() != 2 { // max_deliver is 1: the terminated one was delivered as often
		t.Errorf("%d dying at the next leader", next.NumDying())
	}
	next.Buried(1, now)
	if next.AckFloor().Stream != 1 || next.NumDying() != 1 {
		t.Errorf("floor %+v, %d dying after one was buried", next.AckFloor(), next.NumDying())
	}
	next.DropDying(now)
	if next.NumAckPending() != 0 {
		t.Error("what doesn't bury any more keeps what was dying")
	}
}

func TestKeyOfAMessage(t *testing.T) {
	m := &topics.Message{
		Subject: "orders.eu.7", Header: []byte("NATS/1.0\r\nX: 1\r\nKey:  k 1 \r\n\r\n"),
		Payload: []byte(`{"id": 7, "s":"x", "o":{"a/b":[true, null]}, "~":1.0}`),
	}
	for spec, want := range map[string]string{
		"header:Key": "k 1", "header:key": "-", "token:1": "orders", "token:3": "7", "token:4": "-",
		"/id": "7", "json:/s": `"x"`, "/o": "-", "/o/a~1b/0": "true", "/o/a~1b/1": "-", "/o/a~1b/2": "-", "/~0": "1.0", "/none": "-", "/id/x": "-",
	} {
		k, err := ParseKey(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		got, has := k.Of(m)
		if !has {
			got = "-"
		}
		if got != want {
			t.Errorf("%s = %q, want %q", spec, got, want)
		}
	}
	k, _ := ParseKey("/id")
	if _, has := k.Of(&topics.Message{Payload: []byte("{")}); has {
		t.Error("what is no JSON has a key")
	}
	for _, bad := range []string{"", "id", "header:", "header:a b", "token:0", "token:x", "json:id", "/a~2", "/a~"} {
		if _, err := ParseKey(bad); err == nil {
			t.Errorf("%q is taken as a key", bad)
		}
	}
}
