package store

import (
	"fmt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// Load returns one message, or ErrNotFound. A *CorruptError says that it is
// damaged on disk.
func (t *Topic) Load(seq topics.Sequence) (topics.Message, error) {
	t.s.mu.RLock()
	if !t.alive(seq) {
		t.s.mu.RUnlock()
		return topics.Message{}, notFound(seq)
	}
	if t.refs.has(seq) {
		defer t.s.mu.RUnlock()
		return t.inTail(seq), nil
	}
	r := t.runAt(seq)
	if r == nil {
		defer t.s.mu.RUnlock()
		err := t.lostError(seq)
		t.s.ReportDamage(err)
		return topics.Message{}, err
	}
	at := *r
	at.file.Retain()
	t.s.mu.RUnlock()
	defer t.s.release(at.file)
	m, err := t.s.loadFrom(&at, seq)
	t.s.ReportDamage(err)
	return m, err
}

func notFound(seq topics.Sequence) error {
	return fmt.Errorf("load sequence %d: %w", seq, ErrNotFound)
}

// lostError is for a live message that no data file in use holds.
func (t *Topic) lostError(seq topics.Sequence) error {
	return &CorruptError{File: t.s.o.Dir, Reason: fmt.Sprintf("the data file with sequence %d of topic %d is gone or damaged", seq, t.id)}
}

// load is Load for the apply side.
func (t *Topic) load(seq topics.Sequence) (topics.Message, error) {
	if !t.alive(seq) {
		return topics.Message{}, notFound(seq)
	}
	if t.refs.has(seq) {
		return t.inTail(seq), nil
	}
	if r := t.runAt(seq); r != nil {
		return t.s.loadFrom(r, seq)
	}
	return topics.Message{}, t.lostError(seq)
}

// loadFrom reads one message of a run; the caller holds the file.
func (s *Store) loadFrom(r *run, seq topics.Sequence) (topics.Message, error) {
	in := s.loadBlock(r)
	if in.err != nil {
		return topics.Message{}, in.err
	}
	i := in.block.Find(seq)
	if i == in.block.Len() || in.block.Sequence(i) != seq {
		return topics.Message{}, &CorruptError{File: r.file.Path(), Reason: fmt.Sprintf("the index doesn't know sequence %d", seq)}
	}
	if v := s.cache.get(r.key(true)); v != nil {
		return v.(*datafile.Chunk).Message(i)
	}
	return r.file.Message(r.info(), in.block, i)
}

// inTail returns a message the tail holds.
func (t *Topic) inTail(seq topics.Sequence) topics.Message {
	r, _ := t.refs.at(seq)
	sl := t.s.tail.slotOf(r)
	subj, header, payload := parts(sl.data, int(uint32(r)))
	return topics.Message{Sequence: seq, Time: sl.time, Subject: alias(subj), Header: header, Payload: payload}
}

// batch is a Read under way.
type batch struct {
	msgs  []topics.Message
	next  topics.Sequence
	left  int // messages
	bytes int // so far
	most  int // bytes; 0 is no bound
	any   bool
}

// add takes a message if it fits.
func (b *batch) add(m topics.Message) bool {
	size := len(m.Header) + len(m.Payload)
	if b.left == 0 || b.most > 0 && b.any && b.bytes+size > b.most {
		return false
	}
	b.msgs = append(b.msgs, m)
	b.left--
	b.bytes += size
	b.any = true
	b.next = m.Sequence + 1
	return true
}

// Read appends to dst up to max live messages at or after from that f lets
// through, until their headers and payloads reach maxBytes (0: no bound; at least
// one message comes). next is where to go on; with nothing appended it is above
// all that was looked at. With a *CorruptError, msgs holds what came before the
// damage and next is behind it: a reader that can do without goes on there.
func (t *Topic) Read(f *topics.Filter, from topics.Sequence, max int, maxBytes int, dst []topics.Message) (msgs []topics.Message, next topics.Sequence, err error) {
	b := batch{msgs: dst, next: from, left: max, most: maxBytes}
	for b.left > 0 {
		t.s.mu.RLock()
		seq := t.seek(b.next)
		if seq > t.last {
			b.next = t.last + 1
			t.s.mu.RUnlock()
			break
		}
		if t.refs.has(seq) {
			t.readTail(&b, f, seq)
			t.s.mu.RUnlock()
			break
		}
		r := t.runAt(seq)
		if r == nil {
			b.next = t.seek(seq + 1)
			err = t.lostError(seq)
			t.s.mu.RUnlock()
			break
		}
		at, live := *r, t.liveSequences(r, seq, f, b.left)
		at.file.Retain()
		t.s.mu.RUnlock()
		more, e := t.readRun(&b, f, &at, live)
		t.s.release(at.file)
		if err = e; err != nil || !more {
			break
		}
	}
	t.s.ReportDamage(err)
	return b.msgs, b.next, err
}

// seek returns the first live sequence at or after from.
func (t *Topic) seek(from topics.Sequence) topics.Sequence {
	return t.dead.nextLive(max(from, t.first))
}

// readTail reads what the tail holds from seq on.
func (t *Topic) readTail(b *batch, f *topics.Filter, seq topics.Sequence) {
	m := t.matcher(f)
	for ; seq <= t.last; seq = t.dead.nextLive(seq + 1) {
		if m != nil {
			if _, sub := t.refs.at(seq); !m.match(t, sub) {
				continue
			}
		}
		if !b.add(t.inTail(seq)) {
			return
		}
	}
	b.next = t.last + 1
}

// liveSequences returns which sequences of a run from seq on are alive; without
// a filter, no more than are needed.
func (t *Topic) liveSequences(r *run, seq topics.Sequence, f *topics.Filter, needed int) *liveSet {
	l := &liveSet{from: seq, to: min(r.last, t.last)}
	if t.dead.total > 0 && t.dead.below(l.to+1) != t.dead.below(seq) {
		for at := t.dead.nextLive(seq); at <= l.to; at = t.dead.nextLive(at + 1) {
			if f == nil && len(l.seqs) == needed {
				l.to = at - 1
				break
			}
			l.seqs = append(l.seqs, at)
		}
		l.sparse = true
	}
	return l
}

// liveSet is a reader's copy of what was alive in a run when it looked.
type liveSet struct {
	from, to topics.Sequence
	sparse   bool
	seqs     []topics.Sequence // when sparse
}

// places returns the places in a block of up to most of the living that f lets
// through, and how many places it looked at.
func (l *liveSet) places(block *datafile.Block, f *topics.Filter, most int) (places []int32, seen int) {
	var known []uint8
	if f != nil {
		known = make([]uint8, len(block.Subjects))
	}
	wanted := func(i int) bool {
		if f == nil {
			return true
		}
		at := block.Subject(i)
		if known[at] == 0 {
			known[at] = verdictNo
			if f.Match(block.Subjects[at].Name) {
				known[at] = verdictYes
			}
		}
		return known[at] == verdictYes
	}
	k, start := 0, block.Find(l.from)
	i := start
	for ; i < block.Len() && block.Sequence(i) <= l.to && len(places) < most; i++ {
		if l.sparse {
			for k < len(l.seqs) && l.seqs[k] < block.Sequence(i) {
				k++
			}
			if k == len(l.seqs) {
				break
			}
			if l.seqs[k] != block.Sequence(i) {
				continue
			}
		}
		if wanted(i) {
			places = append(places, int32(i))
		}
	}
	return places, i - start
}

// sparsely is the share of a run's messages, as 1 in so many, below which they are
// read one by one.
const sparsely = 16

// readRun reads what is wanted of one run; more tells that the batch has room
// for what follows it.
func (t *Topic) readRun(b *batch, f *topics.Filter, r *run, live *liveSet) (more bool, err error) {
	in := t.s.loadBlock(r)
	if in.err != nil {
		b.next = r.last + 1
		return false, in.err
	}
	places, seen := live.places(in.block, f, b.left)
	load := func(i int) (topics.Message, error) { return r.file.Message(r.info(), in.block, i) }
	if len(places)*sparsely > seen || t.s.cache.get(r.key(true)) != nil {
		chunk, err := t.s.loadChunk(r, in.block)
		if err != nil {
			b.next = r.last + 1
			return false, err
		}
		load = chunk.Message
	}
	for _, i := range places {
		m, err := load(int(i))
		if err != nil {
			b.next = in.block.Sequence(int(i)) + 1
			return false, err
		}
		if !b.add(m) {
			return false, nil
		}
	}
	if b.left == 0 {
		return false, nil
	}
	b.next = live.to + 1
	return true, nil
}
