package store

import (
	"encoding/json"
	"math/big"
	"strconv"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

// Publish applies the publish record at off of the entry given to Begin; p is
// what topics.ParsePublish made of it. The checks come in the order clients of a
// replicated topic know: a repeated message id is a duplicate before anything
// that it expects is looked at.
func (s *Store) Publish(off int, p topics.Publish) topics.PublishResult {
	t := s.find(p.Topic)
	if t == nil {
		if s.damaged[p.Topic] != nil {
			return topics.PublishResult{Fault: faultOffline}
		}
		return topics.PublishResult{Fault: faultNoTopic}
	}
	cfg := t.cfg
	if cfg.Sealed {
		return topics.PublishResult{Fault: faultSealed}
	}
	if f := t.tooBig(len(p.Header), len(p.Payload)); f != nil {
		return topics.PublishResult{Fault: f}
	}
	if p.Flags&topics.PublishTimed == 0 {
		p.Time = s.now
	} else {
		// Reading by time relies on times that rise and are past.
		p.Time = max(min(p.Time, s.now), t.lastTime)
	}
	if p.Flags&topics.PublishRestored != 0 {
		return topics.PublishResult{Sequence: t.restore(off, &p)}
	}
	if len(p.Header) > 0 {
		return t.publishHeaders(off, &p)
	}
	if cfg.AllowMsgCounter && p.Flags&topics.PublishSourced == 0 {
		return topics.PublishResult{Fault: faultIncrMissing}
	}
	seq, fault := t.admit(&p, "", func() ref { return s.record(off, &p) })
	if fault == nil {
		t.lastMsgID = ""
	}
	return topics.PublishResult{Sequence: seq, Fault: fault}
}

func (t *Topic) tooBig(header, payload int) *topics.Fault {
	if m := int(t.cfg.MaxMsgSize); m > 0 && header+payload > m {
		return faultTooBig
	}
	if header > headerMax {
		return faultHeaderTooBig
	}
	return nil
}

// publishHeaders applies a publish that has headers.
func (t *Topic) publishHeaders(off int, p *topics.Publish) topics.PublishResult {
	h := parseHeaders(p.Header)
	if h.msgID != "" && t.cfg.Mirror == nil && !t.checked {
		if seq, ok := t.duplicate(h.msgID); ok {
			if h.source != "" && p.Flags&topics.PublishSourced != 0 {
				t.noteSource(h.source) // it is dealt with
			}
			return topics.PublishResult{Sequence: seq, Duplicate: true}
		}
	}
	ttl, fault := t.check(p, &h)
	if fault != nil {
		return topics.PublishResult{Fault: fault}
	}
	record := func() ref { return t.s.record(off, p) }
	changed := false
	if ttl > 0 && ttl != never && t.cfg.SubjectDeleteMarkerTTL > 0 && t.cfg.MaxMsgsPer != 1 {
		// A marker must outlive what it marks, or it could be missed.
		if least := topics.Nanos(t.cfg.SubjectDeleteMarkerTTL.Truncate(time.Second)); ttl < least {
			ttl, changed = least, true
			p.Header = withHeader(p.Header, "Nats-TTL", strconv.FormatInt(int64(least/topics.Nanos(time.Second)), 10))
		}
	}
	var total string
	if h.incr != "" && t.cfg.AllowMsgCounter {
		if total, fault = t.count(p, &h); fault != nil {
			return topics.PublishResult{Fault: fault}
		}
		changed = true
	}
	if h.schedule != "" && h.rollup == "" && t.cfg.AllowMsgSchedules {
		h.rollup, changed = "sub", true
		p.Header = withHeader(p.Header, "Nats-Rollup", "sub")
	}
	if changed {
		if f := t.tooBig(len(p.Header), len(p.Payload)); f != nil && !t.checked {
			return topics.PublishResult{Fault: f}
		}
		record = func() ref { r, _ := t.s.keepMade(p); return r }
	}
	seq, fault := t.admit(p, h.rollup, record)
	if fault != nil {
		return topics.PublishResult{Fault: fault}
	}
	t.settle(p, &h, seq, ttl)
	return topics.PublishResult{Sequence: seq, Value: total}
}

// settle does what follows a stored message with headers.
func (t *Topic) settle(p *topics.Publish, h *headers, seq topics.Sequence, ttl topics.Nanos) {
	if ttl > 0 && t.alive(seq) {
		t.expire(seq, ttl, p.Time)
	}
	if h.source != "" {
		t.noteSource(h.source)
	}
	t.lastMsgID = string([]byte(h.msgID))
	if h.msgID != "" {
		t.remember(t.lastMsgID, seq, p.Time)
	}
	t.endSchedule(h)
	keep := uint64(1)
	if !t.alive(seq) {
		keep = 0
	}
	switch h.rollup {
	case "sub":
		t.purgeSubject(alias(p.Subject), keep)
	case "all":
		if t.messages > keep {
			t.purgeBelow(t.last + 1 - topics.Sequence(keep))
		}
	}
}

// check makes the checks of a message with headers, deduplication excepted, and
// returns its time to live.
func (t *Topic) check(p *topics.Publish, h *headers) (ttl topics.Nanos, fault *topics.Fault) {
	if t.checked {
		ttl, _ = parseTTL(h.ttl)
		return ttl, nil
	}
	sourced := p.Flags&topics.PublishSourced != 0
	if !sourced {
		if fault = t.checkCounter(p, h); fault != nil {
			return 0, fault
		}
	}
	if h.expectedTopic != "" && h.expectedTopic != t.cfg.Name {
		return 0, faultWrongTopic
	}
	if h.ttl != "" {
		var ok bool
		if ttl, ok = parseTTL(h.ttl); !ok {
			return 0, faultTTLInvalid
		}
		if ttl != 0 && !t.cfg.AllowMsgTTL && !sourced {
			return 0, faultTTLDisabled
		}
	}
	if fault = t.checkExpected(p, h); fault != nil {
		return 0, fault
	}
	if h.batchID != "" && !sourced {
		// Stored one by one they would be no batch: better none than some.
		return 0, faultAtomicDisabled
	}
	if !sourced {
		if fault = t.checkSchedule(p, h); fault != nil {
			return 0, fault
		}
	}
	if h.source != "" && !sourced {
		return 0, faultSourceHeader
	}
	if h.expectedMsgID != "" && h.expectedMsgID != t.lastMsgID {
		return 0, faultWrongLastID(t.lastMsgID)
	}
	if h.rollup != "" {
		if (!t.cfg.AllowRollup || t.cfg.DenyPurge) && !sourced {
			return 0, faultRollupDenied
		}
		if h.rollup != "sub" && h.rollup != "all" {
			return 0, topics.NewFault(500, 10111, "rollup value invalid: %q", h.rollup)
		}
	}
	return ttl, nil
}

// checkExpected compares what the publisher believes to be last with what is.
func (t *Topic) checkExpected(p *topics.Publish, h *headers) *topics.Fault {
	switch {
	case h.hasLastSubject:
		of := h.expectedSubject
		if of == "" {
			of = alias(p.Subject)
		}
		if last := t.lastOf(of); last != h.expectedLastSubject {
			return faultWrongLast(last)
		}
	case h.expectedSubject != "":
		return faultSubjectNoSeq
	}
	if h.hasLast && h.expectedLast != t.last {
		return faultWrongLast(t.last)
	}
	return nil
}

// checkCounter tells whether an increment is allowed, or missing.
func (t *Topic) checkCounter(p *topics.Publish, h *headers) *topics.Fault {
	if h.incr == "" {
		if t.cfg.AllowMsgCounter {
			return faultIncrMissing
		}
		return nil
	}
	if _, ok := new(big.Int).SetString(h.incr, 10); !ok {
		return faultIncrInvalid
	}
	if !t.cfg.AllowMsgCounter {
		return faultIncrDisabled
	}
	if len(p.Payload) > 0 {
		return faultIncrPayload
	}
	if h.rollup != "" || h.expectedTopic != "" || h.expectedMsgID != "" || h.expectedSubject != "" ||
		h.hasLast || h.hasLastSubject {
		return faultIncrInvalid
	}
	return nil
}

// counterBody is the stored body of a counter's message.
type counterBody struct {
	Value string `json:"val"`
}

// count adds the increment to the subject's total, and turns p into the message
// to store.
func (t *Topic) count(p *topics.Publish, h *headers) (total string, fault *topics.Fault) {
	incr, ok := new(big.Int).SetString(h.incr, 10)
	if !ok {
		return "", faultIncrInvalid
	}
	sum := new(big.Int)
	if last := t.lastOf(alias(p.Subject)); last != 0 {
		m, err := t.load(last)
		var body counterBody
		if err != nil || json.Unmarshal(m.Payload, &body) != nil {
			return "", faultCounterBroken
		}
		if _, ok := sum.SetString(body.Value, 10); !ok {
			return "", faultCounterBroken
		}
		if prior := parseHeaders(m.Header).counterSources; prior != "" && h.counterSources == "" {
			p.Header = withHeader(p.Header, "Nats-Counter-Sources", prior)
		}
	}
	total = sum.Add(sum, incr).String()
	p.Payload = []byte(`{"val":"` + total + `"}`)
	return total, nil
}

// admit applies the limits that refuse, gives the message its sequence, and lets
// go of what the limits then push out. record makes the message's ref once it is
// clear that it is kept.
func (t *Topic) admit(p *topics.Publish, rollup string, record func() ref) (topics.Sequence, *topics.Fault) {
	cfg := t.cfg
	if cfg.Retention == topics.RetainInterest && !t.wanted(alias(p.Subject)) {
		return t.skip(), nil
	}
	size := t.size(len(p.Subject), len(p.Header), len(p.Payload))
	if cfg.Discard == topics.DiscardNew && !t.checked {
		if f := t.refuses(p, size, rollup); f != nil {
			return 0, f
		}
	}
	i := t.append(record(), alias(p.Subject), size, p.Time)
	seq := t.last
	if cfg.MaxMsgsPer > 0 {
		t.enforcePer(i)
	}
	t.enforce()
	return seq, nil
}

// refuses tells whether a topic that discards new messages is full. A message
// that replaces one of its subject is let in.
func (t *Topic) refuses(p *topics.Publish, size uint64, rollup string) *topics.Fault {
	cfg := t.cfg
	replaces := false
	var room uint64
	if cfg.MaxMsgsPer > 0 {
		if i, ok := t.subjects.find(alias(p.Subject)); ok && t.subjects.entries[i].count >= uint64(cfg.MaxMsgsPer) {
			if cfg.DiscardNewPer && rollup == "" {
				return faultMaxPer
			}
			replaces = true
			room = t.meta(t.firstOf(i)).size
		}
	}
	if cfg.MaxMsgs > 0 && t.messages >= uint64(cfg.MaxMsgs) && !replaces {
		return faultMaxMsgs
	}
	if cfg.MaxBytes > 0 && t.bytes+size > uint64(cfg.MaxBytes) && (!replaces || room < size) {
		return faultMaxBytes
	}
	return nil
}

// append stores a message under the next sequence, with a time, and returns its
// subject's slot.
func (t *Topic) append(r ref, subj string, size uint64, at topics.Nanos) uint32 {
	s := t.s
	t.last++
	if t.messages == 0 {
		t.first, t.firstTime = t.last, at
	}
	t.messages++
	t.bytes += size
	t.lastTime = at
	i, fresh := t.subjects.add(subj, t.last)
	if fresh && len(t.matchers) > 0 {
		t.forgetMatches(i)
	}
	t.refs.push(t.last, r, i)
	t.s.marks.stored(t.id, t.last, at, t.s.tail.slotOf(r).data[uint32(r):])
	if t.expiries != nil && t.expiries.oldTime == 0 {
		t.expiries.oldTime = at
	}
	t.touch()
	if !t.grew {
		t.grew = true
		s.grown = append(s.grown, t.id)
	}
	return i
}

// skip uses a sequence up for a message nobody wants.
func (t *Topic) skip() topics.Sequence {
	t.last++
	t.lastTime = t.s.now
	if t.messages == 0 {
		t.first = t.last + 1
		t.dead.trim(t.first)
	} else {
		t.dead.add(t.last)
		t.refs.push(t.last, 0, 0)
	}
	t.touch()
	return t.last
}

// touch marks the topic as changed since the last flush.
func (t *Topic) touch() {
	if !t.marking && !t.s.marks.all {
		t.s.marks.touch(t)
	}
	if !t.dirty {
		t.dirty = true
		t.s.dirty = append(t.s.dirty, t)
	}
}

// wanted tells whether any consumer of an interest topic lets a subject through.
func (t *Topic) wanted(subj string) bool {
	if t.members == nil {
		return false
	}
	for _, m := range t.members.byID {
		if m.c.Filter().Match(subj) {
			return true
		}
	}
	return false
}

// lastOf returns the last live sequence of a subject or pattern, 0 if none.
func (t *Topic) lastOf(subj string) topics.Sequence {
	if subject.IsLiteral(subj) {
		i, ok := t.subjects.find(subj)
		if !ok {
			return 0
		}
		return t.lastIn(i)
	}
	seq, _ := t.prevNow(t.once(subj), t.last)
	return seq
}
