package state

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// acker tells publishers and submitters what became of a batch. It belongs to
// one queue's goroutine.
type acker struct {
	replier func(*front.Account) Replier
	domain  string
	// republish takes a message that topics capture; nil where nothing can.
	republish func(republished)
	repliers  map[*front.Account]Replier
	touched   []Replier // have something staged
	scratch   []byte
}

// noResponders is what a publisher gets that nobody listens to: clients retry.
var noResponders = []byte("NATS/1.0 503\r\n\r\n")

// answer answers everybody who waits for a batch, in the order they came.
// Whoever's outcome is not known is told so if it has a callback; a publisher
// hears nothing, and tries again under the same message id.
func (a *acker) answer(b *batch, res *results, err error) {
	switch {
	case err == nil:
		a.ackAll(b, res)
		a.echoAll(b, res)
	case errors.Is(err, replication.ErrOutcomeUnknown): // for whatever reason
	case errors.Is(err, replication.ErrNoSpace):
		a.refuseAll(b, faultNoSpace)
	case errors.Is(err, replication.ErrBusy):
		a.refuseAll(b, faultUnavailable)
	case errors.Is(err, replication.ErrNotLeader):
		a.refuseAll(b, nil)
	}
	for i := range b.waits {
		if w := &b.waits[i]; w.done != nil {
			if err == nil {
				w.done(res.publishes[w.publish], nil)
			} else {
				w.done(topics.PublishResult{}, outcome(err))
			}
		}
	}
	for i, done := range b.submits {
		switch {
		case done == nil:
		case err == nil:
			done(res.others[i], nil)
		default:
			done(nil, outcome(err))
		}
	}
	for _, r := range a.touched {
		r.Flush()
	}
	clear(a.touched)
	a.touched = a.touched[:0]
}

// outcome turns how a proposal ended into this package's words.
func outcome(err error) error {
	switch {
	case errors.Is(err, replication.ErrNoSpace):
		return faultNoSpace
	case errors.Is(err, replication.ErrBusy):
		return ErrBusy
	case errors.Is(err, replication.ErrClosed):
		return ErrClosed
	case errors.Is(err, replication.ErrOutcomeUnknown):
		return ErrUnknown
	}
	return err
}

func (a *acker) ackAll(b *batch, res *results) {
	if a.replier == nil || len(b.waits) == 0 {
		return
	}
	// One string for all the reply subjects: the receiver may keep them.
	replies := string(b.replies)
	var (
		account *front.Account
		to      Replier
	)
	for i := range b.waits {
		w := &b.waits[i]
		if w.done != nil || w.fast != nil {
			continue
		}
		if to == nil || w.account != account {
			account, to = w.account, a.of(w.account)
		}
		reply := replies[w.reply : w.reply+w.length]
		r := &res.publishes[w.publish]
		if r.Fault != nil && r.Fault.ErrCode == faultTopicNotFound.ErrCode {
			to.Answer(w.node, reply, noResponders, nil)
			continue
		}
		if w.batch != nil {
			r.Value = "" // that of its last message says nothing about the batch
		}
		a.scratch = appendPubAck(a.scratch[:0], w.topic, a.domain, r)
		if w.batch != nil && r.Fault == nil {
			a.scratch = appendBatchAck(a.scratch, w.batch)
		}
		to.Answer(w.node, reply, nil, a.scratch)
	}
}

// refuseAll tells all publishers of a batch that nothing was stored; without a
// fault, that nobody here takes it.
func (a *acker) refuseAll(b *batch, f *topics.Fault) {
	if a.replier == nil {
		return
	}
	replies := string(b.replies)
	for i := range b.waits {
		w := &b.waits[i]
		if w.done != nil || w.fast != nil || w.gone {
			continue
		}
		to, reply := a.of(w.account), replies[w.reply:w.reply+w.length]
		if f == nil {
			to.Answer(w.node, reply, noResponders, nil)
			continue
		}
		a.scratch = appendPubAck(a.scratch[:0], w.topic, a.domain, &topics.PublishResult{Fault: f})
		to.Answer(w.node, reply, nil, a.scratch)
	}
}

// of returns the way to an account's publishers and remembers to flush it.
func (a *acker) of(account *front.Account) Replier {
	r := a.repliers[account]
	if r == nil {
		r = a.replier(account)
		if a.repliers == nil {
			a.repliers = map[*front.Account]Replier{}
		}
		a.repliers[account] = r
	}
	for _, t := range a.touched {
		if t == r {
			return r
		}
	}
	a.touched = append(a.touched, r)
	return r
}

// appendPubAck appends the answer to one publish:
//
//	{"stream":"S","seq":N[,"domain":"D"][,"duplicate":true][,"val":"V"]}
//	{"error":{"code":C,"err_code":E,"description":"…"},"stream":"S","seq":0}
func appendPubAck(dst []byte, t *Topic, domain string, r *topics.PublishResult) []byte {
	if r.Fault != nil {
		dst = appendFault(append(dst, `{"error":`...), r.Fault)
		dst = append(dst, ',')
		dst = append(dst, t.ackHead[1:]...)
		return append(dst, `0}`...)
	}
	dst = append(dst, t.ackHead...)
	dst = strconv.AppendUint(dst, uint64(r.Sequence), 10)
	if domain != "" {
		dst = append(dst, `,"domain":`...)
		dst = appendQuoted(dst, domain)
	}
	if r.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	if r.Value != "" {
		dst = append(dst, `,"val":`...)
		dst = appendQuoted(dst, r.Value)
	}
	return append(dst, '}')
}

// appendFault appends a fault as clients read it.
func appendFault(dst []byte, f *topics.Fault) []byte {
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(f.Status), 10)
	dst = strconv.AppendUint(append(dst, `,"err_code":`...), uint64(f.ErrCode), 10)
	return append(appendQuoted(append(dst, `,"description":`...), f.Text), '}')
}

// appendBatchAck makes the PubAck at the end of dst that of a batch.
func appendBatchAck(dst []byte, ack *batchAck) []byte {
	dst = append(dst[:len(dst)-1], `,"batch":`...)
	dst = appendQuoted(dst, ack.id)
	dst = append(dst, `,"count":`...)
	return append(strconv.AppendUint(dst, ack.count, 10), '}')
}

// ackHead is how a topic's PubAcks begin.
func ackHead(topic string) []byte {
	return append(appendQuoted([]byte(`{"stream":`), topic), `,"seq":`...)
}

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b, err := json.Marshal(s)
			if err != nil { // a string always encodes
				return append(dst, `""`...)
			}
			return append(dst, b...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
