package state

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// Guarded is what a producer sends in one piece: applied whole, once, in the order of its
// numbers, or refused (topics.Guard). Guard.Records is set by those who send it.
type Guarded struct {
	Guard     topics.Guard
	Step      []byte // head of an operator's step; nil: none
	Letters   []byte // body of a RecordLetters that goes with it; nil: none
	Publishes []topics.Publish
}

// append appends the guard's body and, behind it, the records that it guards.
func (x *Guarded) append(dst []byte) []byte {
	g := x.Guard
	g.Records = uint32(len(x.Publishes))
	if x.Step != nil {
		g.Records++
	}
	if x.Letters != nil {
		g.Records++
	}
	dst = topics.AppendGuard(dst, &g)
	if x.Letters != nil {
		dst = topics.AppendRecord(dst, topics.RecordLetters, x.Letters)
	}
	if x.Step != nil {
		dst = topics.AppendRecord(dst, topics.RecordStep, x.Step)
	}
	for i := range x.Publishes {
		dst = topics.AppendPublish(dst, &x.Publishes[i])
	}
	return dst
}

// Size is about how many bytes of an entry it takes.
func (x *Guarded) Size() int {
	n := topics.GuardSize + 3*topics.RecordHeader + len(x.Step) + len(x.Letters)
	for i := range x.Publishes {
		n += x.Publishes[i].Size()
	}
	return n
}

// Step is an operator's step that was committed. Head aliases the entry.
type Step struct {
	Index topics.Index
	Guard topics.Guard
	Head  []byte
}

// SubmitGuarded proposes guarded records on the node that leads the group, behind what
// was submitted before. done is called as Submit's is. ErrBusy means that the group holds
// more than it can flush.
func (g *Group) SubmitGuarded(x *Guarded, done func(topics.GuardResult, error)) {
	r := g.local.Load()
	if r == nil || !r.isLeader() {
		done(topics.GuardResult{}, replication.ErrNotLeader)
		return
	}
	r.queue.submit(topics.RecordGuard, x.append(make([]byte, 0, x.Size())), func(result any, err error) {
		done(guardResult(result, err))
	})
}

// AskGuarded has the group's leader, wherever it is, apply guarded records, and waits for
// what that gave. With ErrUnknown it may be sent again: it is applied once.
func (g *Group) AskGuarded(ctx context.Context, x *Guarded) (topics.GuardResult, error) {
	return guardResult(g.ask(ctx, topics.RecordGuard, x.append(make([]byte, 0, x.Size()))))
}

func guardResult(result any, err error) (topics.GuardResult, error) {
	if err != nil {
		return topics.GuardResult{}, err
	}
	got, ok := result.(topics.GuardResult)
	if !ok {
		return got, errResult(topics.RecordGuard, result)
	}
	return got, nil
}

// DeclareProducer begins an epoch of a producer in a group, led anywhere; epoch 0 removes
// it. An epoch that isn't higher changes nothing. It returns the epoch in force.
func (g *Group) DeclareProducer(ctx context.Context, id, epoch uint64) (uint64, error) {
	raw := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id), epoch)
	result, err := g.askAgain(ctx, topics.RecordProducer, raw)
	if err != nil {
		return 0, fmt.Errorf("declare epoch %d of producer %d in group %d: %w", epoch, id, g.id, err)
	}
	in, ok := result.(declared)
	if !ok {
		return 0, errResult(topics.RecordProducer, result)
	}
	return uint64(in), nil
}

// declared is the result of a declaration: the epoch in force.
type declared uint64

// guardable tells why guarded records can't be taken: they are none, or the group holds
// more than it can flush.
func (q *queue) guardable(raw []byte) error {
	g, err := topics.ParseGuard(raw)
	if err != nil {
		return err
	}
	records, n := raw[topics.GuardSize:], uint32(0)
	for off := 0; off < len(records); n++ {
		kind, body, next, err := topics.NextRecord(records, off)
		if err != nil {
			return err
		}
		if kind == topics.RecordPublish {
			if _, err := topics.ParsePublish(body); err != nil {
				return err
			}
		}
		off = next
	}
	if n != g.Records {
		return fmt.Errorf("%w: %d records behind a guard of %d", topics.ErrBadEntry, n, g.Records)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full {
		return ErrBusy
	}
	return nil
}

// guardLocked appends guarded records, found guardable, to the open batch.
func (q *queue) guardLocked(raw []byte, done func(any, error)) {
	records := raw[topics.GuardSize:]
	for off := 0; off < len(records); {
		kind, body, next, _ := topics.NextRecord(records, off) // read by guardable
		if kind == topics.RecordPublish {
			p, _ := topics.ParsePublish(body)
			if t, ok := q.find(p.Topic); ok {
				q.stateLimits(q.open, t.account)
			}
		}
		off = next
	}
	b := q.open
	b.buf = topics.AppendRecord(b.buf, topics.RecordGuard, raw[:topics.GuardSize])
	b.submits = append(b.submits, done)
	b.records++
	for off := 0; off < len(records); {
		kind, body, next, _ := topics.NextRecord(records, off)
		if kind == topics.RecordPublish {
			p, _ := topics.ParsePublish(body)
			t, ok := q.find(p.Topic)
			if ok {
				p.Subject = t.mapped(p.Subject)
			}
			if ok && t.echo.Load() != nil && q.account != nil {
				if a := q.account(t.account); a != nil {
					b.echoes = append(b.echoes, echo{topic: t, account: a, publish: b.publishes, record: len(b.buf)})
				}
			}
			b.buf = topics.AppendPublish(b.buf, &p)
			b.publishes++
		} else {
			b.buf = append(b.buf, records[off:next]...)
			b.submits = append(b.submits, nil)
		}
		b.records++
		off = next
	}
}

// applyGuarded applies the records behind a guard, all or none, and returns where the
// next record is.
func (m *dataMachine) applyGuarded(entry, body []byte, off, left int, r *results) (n, next int, err error) {
	g, err := topics.ParseGuard(body)
	if err != nil {
		return 0, 0, err
	}
	if uint64(g.Records) > uint64(left) {
		return 0, 0, fmt.Errorf("%w: a guard of %d records in front of %d", topics.ErrBadEntry, g.Records, left)
	}
	at := len(r.others)
	r.others = append(r.others, nil)
	var batch []store.Batched
	var head, given []byte
	var how topics.RecordKind // of what is given up
	for range g.Records {
		kind, raw, next, err := topics.NextRecord(entry, off)
		if err != nil {
			return 0, 0, err
		}
		switch kind {
		case topics.RecordPublish:
			p, err := topics.ParsePublish(raw)
			if err != nil {
				return 0, 0, err
			}
			batch = append(batch, store.Batched{Offset: off, Publish: p})
		case topics.RecordLetters, topics.RecordAcked: // the latter in versions before
			how, given = kind, raw
			r.others = append(r.others, nil)
		case topics.RecordStep:
			head = raw
			r.others = append(r.others, nil)
		default:
			return 0, 0, fmt.Errorf("%w: record of kind %d behind a guard", topics.ErrBadEntry, kind)
		}
		off = next
	}
	stored, result := m.publishGuarded(&g, batch)
	r.others[at] = result
	for i := range batch {
		if stored == nil {
			r.publishes = append(r.publishes, topics.PublishResult{Fault: faultGuarded})
		} else {
			r.publishes = append(r.publishes, stored[i])
		}
	}
	if given != nil && result.Verdict == topics.GuardNext {
		// A consumer that is gone has nothing to give up: what it sent stays.
		if _, err := m.applyRecord(how, given); err != nil {
			return 0, 0, err
		}
	}
	if head != nil && result.Verdict == topics.GuardNext {
		step := Step{Index: m.index, Guard: g, Head: head}
		m.steps = append(m.steps, func() { m.told.stepped(m.id, step) })
	}
	return int(g.Records), off, nil
}

func (m *dataMachine) publishGuarded(g *topics.Guard, batch []store.Batched) ([]topics.PublishResult, topics.GuardResult) {
	result := m.data.Judge(g, batch)
	if result.Verdict != topics.GuardNext {
		return nil, result
	}
	// All must have room in their accounts; the rest of the entry may have what those
	// that are refused would have taken.
	before := make([]allowance, len(m.limits))
	for i, l := range m.limits {
		before[i] = *l
	}
	restore := func() {
		for i, l := range m.limits {
			*l = before[i]
		}
	}
	if m.limits != nil {
		for i := range batch {
			if !m.allowed(&batch[i].Publish) {
				restore()
				result.Verdict, result.Fault = topics.GuardRefused, faultAccountStorage
				return nil, result
			}
		}
	}
	stored, result := m.data.PublishGuarded(g, batch)
	if result.Verdict != topics.GuardNext {
		restore()
	}
	return stored, result
}

// applyProducer begins an epoch of a producer, or removes it.
func (m *dataMachine) applyProducer(raw []byte) (any, error) {
	b := bodyOf(raw)
	id, epoch := b.u64(), b.u64()
	if err := b.err(topics.RecordProducer); err != nil {
		return nil, err
	}
	e := Epoch{Producer: id, Index: m.index}
	e.Was, e.Seqs = m.data.Places(id)
	e.Epoch = m.data.Declare(id, epoch)
	m.steps = append(m.steps, func() { m.told.declared(m.id, e) })
	return declared(e.Epoch), nil
}

// Epoch tells which epoch of a producer is in force, 0 when it was removed, which one was
// before, and how far its partitions had come in that.
type Epoch struct {
	Index           topics.Index
	Producer, Epoch uint64
	Was             uint64
	Seqs            map[uint32]uint64
}

// tellSteps tells what an entry meant for operators, in its order.
func (m *dataMachine) tellSteps() {
	for _, tell := range m.steps {
		tell()
	}
	clear(m.steps)
	m.steps = m.steps[:0]
}

// stepped implements telling. What is applied before Start is kept for it.
func (s *State) stepped(group topics.GroupID, step Step) {
	s.tellOperators(func(h *Hooks) {
		if h.OnStep != nil {
			h.OnStep(s.groups.get(s, group), step)
		}
	})
}

// declared implements telling.
func (s *State) declared(group topics.GroupID, e Epoch) {
	s.tellOperators(func(h *Hooks) {
		if h.OnProducer != nil {
			h.OnProducer(s.groups.get(s, group), e)
		}
	})
}

func (s *State) tellOperators(f func(h *Hooks)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.early = append(s.early, f)
		return
	}
	f(&s.hooks)
}

// beforeFlush calls OnFlush. While there are steps that nobody has been told yet it
// waits for Start.
func (s *State) beforeFlush(g *Group, i topics.Index) {
	for {
		s.mu.Lock()
		waits, hook := len(s.early) > 0 && !s.closed, s.hooks.OnFlush
		s.mu.Unlock()
		if waits {
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
			continue
		}
		if hook != nil {
			hook(g, i)
		}
		return
	}
}

// tellEarly tells what was applied before Start; mu is held.
func (s *State) tellEarly() {
	for _, f := range s.early {
		f(&s.hooks)
	}
	s.early = nil
}

// adopted implements telling.
func (s *State) adopted(group topics.GroupID) {
	s.tellOperators(func(h *Hooks) {
		if h.OnAdopted != nil {
			h.OnAdopted(s.groups.get(s, group))
		}
	})
}
