package store

import (
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/subject"
)

// model is a topic done the simple way: a slice of messages.
type model struct {
	cfg       topics.Config
	msgs      []modelMessage
	last      topics.Sequence
	lastMsgID string
	ids       map[string]modelID
}

type modelMessage struct {
	topics.Message
	expires topics.Nanos
}

type modelID struct {
	seq topics.Sequence
	at  topics.Nanos
}

func (m *model) size(msg *topics.Message) uint64 {
	n := uint64(len(msg.Subject) + len(msg.Header) + len(msg.Payload))
	switch {
	case m.cfg.Storage == topics.StoreMemory:
		return n + 16
	case len(msg.Header) > 0:
		return n + 34
	}
	return n + 30
}

func (m *model) bytes() (n uint64) {
	for i := range m.msgs {
		n += m.size(&m.msgs[i].Message)
	}
	return n
}

func (m *model) of(pattern string) (out []modelMessage) {
	for _, msg := range m.msgs {
		if subject.Match(pattern, msg.Subject) {
			out = append(out, msg)
		}
	}
	return out
}

func (m *model) drop(gone func(i int, msg modelMessage) bool) {
	i := -1
	m.msgs = slices.DeleteFunc(m.msgs, func(msg modelMessage) bool {
		i++
		return gone(i, msg)
	})
}

func (m *model) lastOf(pattern string) topics.Sequence {
	if of := m.of(pattern); len(of) > 0 {
		return of[len(of)-1].Sequence
	}
	return 0
}

// modelPublish is what a test publishes: the fields its header is made of.
type modelPublish struct {
	subject, payload          string
	msgID, rollup, ttl, check string
	header                    string
	expectedLast              int64 // -1: not given
	expectedLastSubject       int64
}

func (m *model) publish(p modelPublish, now topics.Nanos) topics.PublishResult {
	fault := func(f *topics.Fault) topics.PublishResult { return topics.PublishResult{Fault: f} }
	if max := int(m.cfg.MaxMsgSize); max > 0 && len(p.header)+len(p.payload) > max {
		return fault(faultTooBig)
	}
	if p.msgID != "" {
		if id, ok := m.ids[p.msgID]; ok && now-id.at < topics.Nanos(m.cfg.Duplicates) {
			return topics.PublishResult{Sequence: id.seq, Duplicate: true}
		}
	}
	var ttl topics.Nanos
	if p.ttl != "" {
		if !m.cfg.AllowMsgTTL {
			return fault(faultTTLDisabled)
		}
		ttl, _ = parseTTL(p.ttl)
	}
	if p.expectedLastSubject >= 0 {
		of := p.subject
		if p.check != "" {
			of = p.check
		}
		if last := m.lastOf(of); last != topics.Sequence(p.expectedLastSubject) {
			return fault(faultWrongLast(last))
		}
	}
	if p.expectedLast >= 0 && topics.Sequence(p.expectedLast) != m.last {
		return fault(faultWrongLast(m.last))
	}
	if p.rollup != "" && !m.cfg.AllowRollup {
		return fault(faultRollupDenied)
	}
	msg := topics.Message{Sequence: m.last + 1, Time: now, Subject: p.subject, Header: []byte(p.header), Payload: []byte(p.payload)}
	if f := m.refuses(&msg, p.rollup); f != nil {
		return fault(f)
	}
	m.last++
	mm := modelMessage{Message: msg}
	switch {
	case ttl == never:
		mm.expires = never
	case ttl > 0:
		mm.expires = now + ttl
	}
	m.msgs = append(m.msgs, mm)
	m.trim()
	m.lastMsgID = p.msgID
	if p.msgID != "" {
		m.ids[p.msgID] = modelID{m.last, now}
	}
	switch p.rollup {
	case "sub":
		m.drop(func(_ int, o modelMessage) bool { return o.Subject == p.subject && o.Sequence != msg.Sequence })
	case "all":
		m.drop(func(_ int, o modelMessage) bool { return o.Sequence != msg.Sequence })
	}
	return topics.PublishResult{Sequence: msg.Sequence}
}

func (m *model) refuses(msg *topics.Message, rollup string) *topics.Fault {
	if m.cfg.Discard != topics.DiscardNew {
		return nil
	}
	replaces, room := false, uint64(0)
	if of := m.of(msg.Subject); m.cfg.MaxMsgsPer > 0 && len(of) >= int(m.cfg.MaxMsgsPer) {
		if m.cfg.DiscardNewPer && rollup == "" {
			return faultMaxPer
		}
		replaces, room = true, m.size(&of[0].Message)
	}
	if m.cfg.MaxMsgs > 0 && len(m.msgs) >= int(m.cfg.MaxMsgs) && !replaces {
		return faultMaxMsgs
	}
	if m.cfg.MaxBytes > 0 && m.bytes()+m.size(msg) > uint64(m.cfg.MaxBytes) && (!replaces || room < m.size(msg)) {
		return faultMaxBytes
	}
	return nil
}

// trim applies the limits that push old messages out.
func (m *model) trim() {
	if per := int(m.cfg.MaxMsgsPer); per > 0 {
		left := make(map[string]int)
		for _, msg := range m.msgs {
			left[msg.Subject]++
		}
		m.drop(func(_ int, msg modelMessage) bool {
			if left[msg.Subject] > per {
				left[msg.Subject]--
				return true
			}
			return false
		})
	}
	if max := int(m.cfg.MaxMsgs); max > 0 && len(m.msgs) > max {
		m.msgs = slices.Clone(m.msgs[len(m.msgs)-max:])
	}
	for m.cfg.MaxBytes > 0 && m.bytes() > uint64(m.cfg.MaxBytes) {
		m.msgs = m.msgs[1:]
	}
}

func (m *model) expire(now topics.Nanos) {
	m.drop(func(_ int, msg modelMessage) bool {
		if msg.expires != 0 {
			return msg.expires <= now
		}
		return m.cfg.MaxAge > 0 && msg.Time <= now-topics.Nanos(m.cfg.MaxAge)
	})
}

func (m *model) purge(p Purge) {
	pattern := p.Subject
	if pattern == "" {
		pattern = ">"
	}
	of := m.of(pattern)
	gone := make(map[topics.Sequence]bool)
	for i, msg := range of {
		switch {
		case p.Sequence > 0:
			gone[msg.Sequence] = msg.Sequence < p.Sequence
		default:
			gone[msg.Sequence] = i < len(of)-int(p.Keep)
		}
	}
	m.drop(func(_ int, msg modelMessage) bool { return gone[msg.Sequence] })
	if pattern == ">" && p.Sequence > m.last {
		m.last = p.Sequence - 1
	}
}

func (m *model) update(cfg topics.Config, now topics.Nanos) {
	m.cfg = cfg
	m.trim()
	if cfg.MaxAge > 0 {
		m.drop(func(_ int, msg modelMessage) bool {
			return msg.expires == 0 && msg.Time <= now-topics.Nanos(cfg.MaxAge)
		})
	}
}

func (m *model) first() topics.Sequence {
	if len(m.msgs) == 0 {
		return m.last + 1
	}
	return m.msgs[0].Sequence
}

const second = topics.Nanos(time.Second)
