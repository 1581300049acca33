package store

import (
	"encoding/json"
	"math/big"

	"github.com/heraldmq/herald/topics"
)

// Batched is one publish of an atomic batch: a publish record of the entry given
// to Begin, and where in the entry it starts.
type Batched struct {
	Offset  int
	Publish topics.Publish
}

// PublishAtomic applies the publishes of an atomic batch: all of them, with
// results in their order, or none and the fault that one of them has. All must be
// for one topic. What a batch may not hold is nats-server's choice: message ids
// that are known, expectations about what it writes itself, rollups that would
// remove part of it.
func (s *Store) PublishAtomic(batch []Batched) ([]topics.PublishResult, *topics.Fault) {
	if len(batch) == 0 {
		return nil, faultBatchIncomplete
	}
	t := s.find(batch[0].Publish.Topic)
	switch {
	case t == nil && s.damaged[batch[0].Publish.Topic] != nil:
		return nil, faultOffline
	case t == nil:
		return nil, faultNoTopic
	case t.cfg.Sealed:
		return nil, faultSealed
	case !t.cfg.AllowAtomic:
		return nil, faultAtomicDisabled
	}
	c := atomicCheck{t: t, subjects: map[string]*atomicSubject{}, ids: map[string]bool{}}
	for i := range batch {
		if f := c.check(&batch[i].Publish); f != nil {
			return nil, f
		}
	}
	results := make([]topics.PublishResult, len(batch))
	t.checked = true
	defer func() { t.checked = false }()
	for i := range batch {
		results[i] = s.Publish(batch[i].Offset, batch[i].Publish)
		if f := results[i].Fault; f != nil {
			// Some of the batch is stored: only a disk that no longer gives what it
			// gave a moment ago leads here, and that damage has been reported.
			s.o.Log.Error("a checked batch was refused halfway", "topic", t.id, "stored", i, "of", len(batch), "fault", f.Text)
			return nil, f
		}
	}
	return results, nil
}

// atomicCheck goes through a batch before anything of it is stored. It knows what
// the messages before would have changed.
type atomicCheck struct {
	t        *Topic
	subjects map[string]*atomicSubject // written by the batch so far
	ids      map[string]bool
	messages uint64
	bytes    uint64
}

// atomicSubject is what a batch does to one subject.
type atomicSubject struct {
	messages uint64
	total    *big.Int // of a counter
}

func (c *atomicCheck) check(p *topics.Publish) *topics.Fault {
	t := c.t
	if f := t.tooBig(len(p.Header), len(p.Payload)); f != nil {
		return f
	}
	var h headers
	if len(p.Header) > 0 {
		h = parseHeaders(p.Header)
	}
	if h.expectedMsgID != "" {
		return faultBatchHeader("Nats-Expected-Last-Msg-Id")
	}
	if h.msgID != "" {
		if _, known := t.duplicate(h.msgID); known || c.ids[h.msgID] {
			return faultBatchDuplicate
		}
		c.ids[h.msgID] = true
	}
	subj, rollup := alias(p.Subject), h.rollup
	if rollup == "" && h.schedule != "" {
		rollup = "sub" // what the store makes it
	}
	if c.messages > 0 {
		of := h.expectedSubject
		if of == "" {
			of = subj
		}
		switch {
		case h.hasLast:
			if now := t.last + topics.Sequence(c.messages); h.expectedLast != now {
				return faultWrongLast(now)
			}
			return faultWrongLastInside // nobody can know it before the batch is stored
		case h.hasLastSubject && c.writes(of):
			return faultWrongLastInside
		case rollup == "all":
			return faultBatchRollup("all")
		case rollup == "sub" && c.subjects[subj] != nil:
			return faultBatchRollup("sub")
		}
	}
	h.batchID = "" // which is what check refuses outside a batch
	if _, f := t.check(p, &h); f != nil {
		return f
	}
	at := c.subjects[subj]
	if at == nil {
		at = &atomicSubject{}
	}
	size := t.size(len(p.Subject), len(p.Header), len(p.Payload))
	if t.cfg.AllowMsgCounter || h.schedule != "" || h.ttl != "" {
		var f *topics.Fault
		if size, f = c.made(p, &h, at); f != nil {
			return f
		}
	}
	if f := c.fits(subj, at, size, rollup != ""); f != nil {
		return f
	}
	c.subjects[subj] = at
	at.messages++
	c.messages++
	c.bytes += size
	return nil
}

// writes tells whether the batch has written to a subject or pattern.
func (c *atomicCheck) writes(of string) bool {
	if c.subjects[of] != nil {
		return true
	}
	f := topics.NewFilter([]string{of})
	for s := range c.subjects {
		if f.Match(s) {
			return true
		}
	}
	return false
}

// made returns the size of a message that the store changes before it keeps it:
// at most what is added to its header, exactly what a counter's body becomes.
func (c *atomicCheck) made(p *topics.Publish, h *headers, at *atomicSubject) (uint64, *topics.Fault) {
	t := c.t
	header, payload := len(p.Header), len(p.Payload)
	if t.cfg.AllowMsgCounter {
		if at.total == nil {
			last, f := t.counted(alias(p.Subject))
			if f != nil {
				return 0, f
			}
			at.total = last
		}
		incr, ok := new(big.Int).SetString(h.incr, 10)
		if !ok {
			return 0, faultIncrInvalid
		}
		at.total = new(big.Int).Add(at.total, incr)
		payload = len(`{"val":""}`) + len(at.total.String())
		if seq := t.lastOf(alias(p.Subject)); seq != 0 {
			if m, err := t.load(seq); err == nil {
				if sources := parseHeaders(m.Header).counterSources; sources != "" {
					header += len("Nats-Counter-Sources: \r\n") + len(sources)
				}
			}
		}
	}
	if h.schedule != "" && h.rollup == "" {
		header += len("Nats-Rollup: sub\r\n")
	}
	if h.ttl != "" && t.cfg.SubjectDeleteMarkerTTL > 0 {
		header += len("Nats-TTL: \r\n") + 20
	}
	if f := t.tooBig(header, payload); f != nil {
		return 0, f
	}
	return t.size(len(p.Subject), header, payload), nil
}

// counted returns a counter's total so far.
func (t *Topic) counted(subj string) (*big.Int, *topics.Fault) {
	sum := new(big.Int)
	last := t.lastOf(subj)
	if last == 0 {
		return sum, nil
	}
	m, err := t.load(last)
	var body counterBody
	if err != nil || json.Unmarshal(m.Payload, &body) != nil {
		return nil, faultCounterBroken
	}
	if _, ok := sum.SetString(body.Value, 10); !ok {
		return nil, faultCounterBroken
	}
	return sum, nil
}

// fits applies the limits of a topic that discards new messages, as if the batch
// so far were stored.
func (c *atomicCheck) fits(subj string, at *atomicSubject, size uint64, rolls bool) *topics.Fault {
	t, cfg := c.t, c.t.cfg
	if cfg.Discard != topics.DiscardNew || cfg.Retention == topics.RetainInterest && !t.wanted(subj) {
		return nil
	}
	if cfg.MaxMsgs > 0 && t.messages+c.messages+1 > uint64(cfg.MaxMsgs) {
		return faultMaxMsgs
	}
	if cfg.MaxBytes > 0 && t.bytes+c.bytes+size > uint64(cfg.MaxBytes) {
		return faultMaxBytes
	}
	if cfg.MaxMsgsPer > 0 && cfg.DiscardNewPer && !rolls {
		held := at.messages
		if i, ok := t.subjects.find(subj); ok {
			held += t.subjects.entries[i].count
		}
		if held >= uint64(cfg.MaxMsgsPer) {
			return faultMaxPer
		}
	}
	return nil
}
