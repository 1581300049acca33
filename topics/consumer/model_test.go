package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/heraldmq/herald/topics"
	"pgregory.net/rapid"
)

// fakeLog is a topic as a slice: subjects[i] is message i+1, "" when removed.
type fakeLog struct {
	subjects []string
	removed  []topics.Sequence
}

func (l *fakeLog) publish(s string) { l.subjects = append(l.subjects, s) }

func (l *fakeLog) live(seq topics.Sequence) bool {
	return seq >= 1 && int(seq) <= len(l.subjects) && l.subjects[seq-1] != ""
}

func (l *fakeLog) remove(seq topics.Sequence) {
	if l.live(seq) {
		l.subjects[seq-1] = ""
		l.removed = append(l.removed, seq)
	}
}

func (l *fakeLog) Bounds() (first, last topics.Sequence) {
	last = topics.Sequence(len(l.subjects))
	for first = 1; first <= last && !l.live(first); first++ {
	}
	return first, last
}

func (l *fakeLog) Next(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	for s := max(from, 1); int(s) <= len(l.subjects); s++ {
		if l.live(s) && f.Match(l.subjects[s-1]) {
			return s, true
		}
	}
	return 0, false
}

func (l *fakeLog) Prev(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool) {
	for s := min(from, topics.Sequence(len(l.subjects))); s >= 1; s-- {
		if l.live(s) && f.Match(l.subjects[s-1]) {
			return s, true
		}
	}
	return 0, false
}

func (l *fakeLog) Count(f *topics.Filter, from topics.Sequence) (n uint64) {
	for s, ok := l.Next(f, from); ok; s, ok = l.Next(f, s+1) {
		n++
	}
	return n
}

func (l *fakeLog) LastPerSubject(f *topics.Filter) (out []topics.Sequence) {
	seen := map[string]bool{}
	for s, ok := l.Prev(f, topics.Sequence(len(l.subjects))); ok; s, ok = l.Prev(f, s-1) {
		if !seen[l.subjects[s-1]] {
			out = append(out, s)
		}
		seen[l.subjects[s-1]] = true
		if s == 1 {
			break
		}
	}
	slices.Sort(out)
	return out
}

// SequenceAt takes a message's time to be its sequence in seconds.
func (l *fakeLog) SequenceAt(t topics.Nanos) topics.Sequence {
	s := topics.Sequence((t + 999_999_999) / 1_000_000_000)
	return min(max(s, 1), topics.Sequence(len(l.subjects)+1))
}

func (l *fakeLog) RemovedSince(mark uint64) (uint64, topics.Sequence) {
	var highest topics.Sequence
	if mark < uint64(len(l.removed)) {
		highest = slices.Max(l.removed[mark:])
	}
	return uint64(len(l.removed)), highest
}

// naive is a consumer written down in the plainest way.
type naive struct {
	log     *fakeLog
	cfg     topics.ConsumerConfig
	filter  *topics.Filter
	todo    map[topics.Sequence]bool // last_per_subject
	resume  topics.Sequence
	last    topics.Sequence // last new delivery
	number  uint64
	pending map[topics.Sequence]*naivePending
	queue   []topics.Sequence
}

type naivePending struct {
	number   uint64
	due      topics.Nanos
	attempts int
	queued   bool
}

func (n *naive) wants(seq topics.Sequence) bool {
	if !n.log.live(seq) || seq <= n.last || !n.filter.Match(n.log.subjects[seq-1]) {
		return false
	}
	return seq >= n.resume || n.todo[seq]
}

func (n *naive) count() (c uint64) {
	for s := range n.log.subjects {
		if n.wants(topics.Sequence(s + 1)) {
			c++
		}
	}
	return c
}

func (n *naive) expire(now topics.Nanos) (gone []topics.Sequence) {
	var due []topics.Sequence
	for s, p := range n.pending {
		if p.due <= now && !p.queued {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b topics.Sequence) int {
		if d := n.pending[a].due - n.pending[b].due; d != 0 {
			return int(d)
		}
		return int(a) - int(b)
	})
	for _, s := range due {
		if p := n.pending[s]; n.cfg.MaxDeliver > 0 && p.attempts >= n.cfg.MaxDeliver {
			delete(n.pending, s)
			gone = append(gone, s)
		} else {
			p.queued = true
			n.queue = append(n.queue, s)
		}
	}
	return gone
}

func (n *naive) candidates() (redeliver []topics.Sequence, next topics.Sequence) {
	for s, p := range n.pending {
		if p.queued {
			redeliver = append(redeliver, s)
		}
	}
	if n.cfg.AckPolicy != topics.AckNone && n.cfg.MaxAckPending > 0 && len(n.pending) >= n.cfg.MaxAckPending {
		return redeliver, 0
	}
	for s := n.last + 1; int(s) <= len(n.log.subjects); s++ {
		if n.wants(s) {
			return redeliver, s
		}
	}
	return redeliver, 0
}

func (n *naive) wait(attempt int) topics.Nanos {
	if k := len(n.cfg.BackOff); k > 0 {
		return topics.Nanos(n.cfg.BackOff[min(attempt, k)-1])
	}
	return topics.Nanos(n.cfg.AckWait)
}

func (n *naive) deliver(seq topics.Sequence, now topics.Nanos) {
	n.number++
	if p := n.pending[seq]; p != nil {
		p.attempts++
		p.due, p.queued = now+n.wait(p.attempts), false
		return
	}
	n.last = seq
	if n.cfg.AckPolicy != topics.AckNone {
		n.pending[seq] = &naivePending{number: n.number, due: now + n.wait(1), attempts: 1}
	}
}

func (n *naive) ack(seq topics.Sequence) (acked []topics.Sequence) {
	for s := range n.pending {
		if s == seq || n.cfg.AckPolicy == topics.AckAll && s < seq {
			acked = append(acked, s)
		}
	}
	for _, s := range acked {
		delete(n.pending, s)
	}
	slices.Sort(acked)
	return acked
}

// machine runs a live copy, a replica of it and the naive consumer side by side.
type machine struct {
	log     *fakeLog
	live    *Consumer
	replica *Consumer
	naive   *naive
	now     topics.Nanos
	acked   map[topics.Sequence]bool // by the replica
	settled map[topics.Sequence]bool // by the naive one, acknowledged or terminated
}

var testSubjects = []string{"a.x", "a.y", "b.x", "b.y", "c"}

func drawConfig(t *rapid.T) topics.ConsumerConfig {
	cfg := topics.ConsumerConfig{
		AckPolicy:     rapid.SampledFrom([]topics.AckPolicy{topics.AckExplicit, topics.AckExplicit, topics.AckAll, topics.AckNone}).Draw(t, "ack"),
		AckWait:       10 * time.Second,
		MaxDeliver:    rapid.SampledFrom([]int{-1, 3}).Draw(t, "max_deliver"),
		MaxAckPending: rapid.SampledFrom([]int{-1, 4, 100}).Draw(t, "max_ack_pending"),
		DeliverPolicy: rapid.SampledFrom([]topics.DeliverPolicy{
			topics.DeliverAll, topics.DeliverLast, topics.DeliverNew, topics.DeliverByStartSeq,
			topics.DeliverByStartTime, topics.DeliverLastPerSubject,
		}).Draw(t, "policy"),
		FilterSubjects: rapid.SampledFrom([][]string{nil, {"a.*"}, {"b.x"}, {"a.x", "c"}}).Draw(t, "filter"),
		OptStartSeq:    uint64(rapid.IntRange(1, 25).Draw(t, "start")),
	}
	if rapid.Bool().Draw(t, "backoff") {
		cfg.BackOff = []time.Duration{time.Second, 5 * time.Second}
	}
	at := time.Unix(int64(cfg.OptStartSeq), 0)
	cfg.OptStartTime = &at
	return cfg
}

func newMachine(t *rapid.T) *machine {
	m := &machine{log: &fakeLog{}, now: 1e9, acked: map[topics.Sequence]bool{}, settled: map[topics.Sequence]bool{}}
	for range rapid.IntRange(0, 20).Draw(t, "before") {
		m.log.publish(rapid.SampledFrom(testSubjects).Draw(t, "subject"))
	}
	for range rapid.IntRange(0, 4).Draw(t, "removed before") {
		m.log.remove(topics.Sequence(rapid.IntRange(1, 20).Draw(t, "seq")))
	}
	cfg := drawConfig(t)
	m.replica = New(1, "c", cfg, m.now, m.log)
	m.naive = &naive{
		log: m.log, cfg: cfg, filter: topics.NewFilter(cfg.FilterSubjects),
		pending: map[topics.Sequence]*naivePending{}, last: m.replica.Delivered().Stream,
	}
	last := topics.Sequence(len(m.log.subjects))
	switch cfg.DeliverPolicy {
	case topics.DeliverLastPerSubject:
		m.naive.resume, m.naive.last, m.naive.todo = last+1, 0, map[topics.Sequence]bool{}
		for _, s := range m.log.LastPerSubject(m.naive.filter) {
			m.naive.todo[s] = true
		}
	case topics.DeliverNew:
		m.naive.last = last
	case topics.DeliverByStartSeq, topics.DeliverByStartTime:
		m.naive.last = topics.Sequence(cfg.OptStartSeq - 1)
		if cfg.DeliverPolicy == topics.DeliverByStartTime {
			m.naive.last = min(m.naive.last, last)
		}
	case topics.DeliverLast:
		m.naive.last = last
		if s, ok := m.log.Prev(m.naive.filter, last); ok {
			m.naive.last = s - 1
		}
	default:
		m.naive.last = 0
	}
	m.lead()
	return m
}

func (m *machine) lead() {
	m.live = m.replica.Clone()
	m.live.Lead(m.log)
	// A leader queues what is due in its own order.
	m.naive.queue = nil
	for _, p := range m.naive.pending {
		p.queued = false
	}
}

func (m *machine) flush(t *rapid.T) {
	for _, r := range m.live.Records(nil) {
		var err error
		note := func(seq topics.Sequence) { m.acked[seq] = true }
		if r.Kind == topics.RecordDelivered {
			err = m.replica.ApplyDelivered(r.Body, nil)
		} else {
			err = m.replica.ApplyAcks(r.Body, note)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !m.live.Equal(m.replica) {
		t.Fatalf("replica differs:\nlive    %s\nreplica %s", show(m.live), show(m.replica))
	}
	for s := range m.settled {
		if !m.acked[s] {
			t.Fatalf("the replica never told that %d is acknowledged", s)
		}
	}
	if len(m.acked) != len(m.settled) {
		t.Fatalf("acknowledged %v, want %v", m.acked, m.settled)
	}
	data, err := m.replica.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Unmarshal(data)
	if err != nil {
		t.Fatal(err)
	}
	if !back.Equal(m.replica) {
		t.Fatalf("flushed state differs:\nbefore %s\nafter  %s", show(m.replica), show(back))
	}
	m.replica = back
}

func show(c *Consumer) string {
	s := fmt.Sprintf("delivered %+v floor %+v initial %+v pending", c.delivered, c.floor, c.initial)
	c.pending.each(func(e *entry) bool { s += fmt.Sprintf(" %+v", *e); return true })
	return s
}

func (m *machine) deliver(t *rapid.T) {
	gone := m.naive.expire(m.now)
	seq, ok := m.live.Next(m.now)
	var told []topics.Sequence
	for _, x := range m.live.TakeExceeded() {
		told = append(told, x.Sequence)
	}
	slices.Sort(told)
	slices.Sort(gone)
	if !slices.Equal(told, gone) {
		t.Fatalf("gave up %v, want %v", told, gone)
	}
	again, next := m.naive.candidates()
	switch {
	case len(again) > 0:
		if !ok || !slices.Contains(again, seq) {
			t.Fatalf("Next() = %d, %t, want one of %v", seq, ok, again)
		}
	case ok != (next > 0) || ok && seq != next:
		t.Fatalf("Next() = %d, %t, want %d", seq, ok, next)
	}
	if !ok {
		return
	}
	if !m.log.live(seq) {
		m.live.Drop(seq, m.now)
		delete(m.naive.pending, seq)
		return
	}
	want := m.live.NumPending()
	if n := m.naive.count(); want != n {
		t.Fatalf("NumPending() = %d, want %d", want, n)
	}
	m.naive.deliver(seq, m.now)
	d := m.live.Deliver(seq, m.now)
	if d.Consumer != m.naive.number || d.Pending != m.naive.count() {
		t.Fatalf("delivery %+v, want number %d and %d pending", d, m.naive.number, m.naive.count())
	}
	if p := m.naive.pending[seq]; p != nil && int(d.Attempt) != p.attempts {
		t.Fatalf("attempt %d, want %d", d.Attempt, p.attempts)
	}
}

func (m *machine) anyPending(t *rapid.T) (topics.Sequence, bool) {
	var all []topics.Sequence
	for s := range m.naive.pending {
		all = append(all, s)
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return rapid.SampledFrom(all).Draw(t, "pending"), true
}

func (m *machine) settle(t *rapid.T, term bool) {
	seq, ok := m.anyPending(t)
	if !ok {
		return
	}
	if term {
		m.live.Term(seq, m.now)
		delete(m.naive.pending, seq)
		m.settled[seq] = true
		return
	}
	if !m.live.Ack(seq, m.now) {
		t.Fatalf("Ack(%d) found nothing", seq)
	}
	for _, s := range m.naive.ack(seq) {
		m.settled[s] = true
	}
}

func (m *machine) check(t *rapid.T) {
	if got, want := m.live.NumPending(), m.naive.count(); got != want {
		t.Fatalf("NumPending() = %d, want %d", got, want)
	}
	if got, want := m.live.NumAckPending(), len(m.naive.pending); got != want {
		t.Fatalf("NumAckPending() = %d, want %d", got, want)
	}
	redelivered := 0
	var lowest topics.Sequence
	next := noDue
	for s, p := range m.naive.pending {
		if p.attempts > 1 {
			redelivered++
		}
		if lowest == 0 || s < lowest {
			lowest = s
		}
		if !p.queued {
			next = min(next, p.due)
		}
		if !m.live.Needs(s) {
			t.Fatalf("Needs(%d) = false though it is pending", s)
		}
	}
	if got := m.live.NumRedelivered(); got != redelivered {
		t.Fatalf("NumRedelivered() = %d, want %d", got, redelivered)
	}
	if lowest > 0 && (m.live.AckFloor().Stream != lowest-1 || m.live.AckFloor().Consumer != m.naive.pending[lowest].number-1) {
		t.Fatalf("AckFloor() = %+v, want just below %d", m.live.AckFloor(), lowest)
	}
	if at, ok := m.live.NextDeadline(); ok != (next != noDue) || ok && at != next {
		t.Fatalf("NextDeadline() = %d, %t, want %d", at, ok, next)
	}
}

func TestConsumerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) { m.log.publish(rapid.SampledFrom(testSubjects).Draw(t, "subject")) },
			"remove": func(t *rapid.T) {
				m.log.remove(topics.Sequence(rapid.IntRange(1, len(m.log.subjects)+1).Draw(t, "seq")))
			},
			"purge": func(t *rapid.T) {
				first := topics.Sequence(rapid.IntRange(1, len(m.log.subjects)/2+1).Draw(t, "first"))
				for s := topics.Sequence(1); s < first; s++ {
					m.log.remove(s)
					delete(m.naive.pending, s)
					// An acknowledgement that comes behind the purge tells nobody.
					delete(m.settled, s)
					delete(m.acked, s)
				}
				m.naive.last = max(m.naive.last, first-1)
				m.replica.Trim(first)
				m.live.Trim(first)
			},
			"deliver":  m.deliver,
			"deliver2": m.deliver,
			"ack":      func(t *rapid.T) { m.settle(t, false) },
			"term":     func(t *rapid.T) { m.settle(t, true) },
			"nak": func(t *rapid.T) {
				seq, ok := m.anyPending(t)
				if !ok {
					return
				}
				delay := rapid.IntRange(0, 3).Draw(t, "delay")
				m.live.Nak(seq, time.Duration(delay)*time.Second, m.now)
				p := m.naive.pending[seq]
				p.due, p.queued = m.now+topics.Nanos(delay)*1e9, false
			},
			"in progress": func(t *rapid.T) {
				seq, ok := m.anyPending(t)
				if !ok {
					return
				}
				m.live.InProgress(seq, m.now)
				p := m.naive.pending[seq]
				p.due, p.queued = m.now+m.naive.wait(p.attempts), false
			},
			"wait":   func(t *rapid.T) { m.now += topics.Nanos(rapid.IntRange(0, 8).Draw(t, "seconds")) * 1e9 },
			"flush":  m.flush,
			"change": func(t *rapid.T) { m.flush(t); m.lead() },
			"":       m.check,
		})
		m.flush(t)
	})
}
