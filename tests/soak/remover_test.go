package soak

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// removal is something that took messages away, or may have.
type removal struct {
	topic   string
	subject string // "" is all
	seq     uint64 // only this one
	below   uint64 // all before this one
	keep    bool   // all but some: which, depends on when
	certain bool
}

// takes tells whether a removal is about a message.
func (r *removal) takes(topic, subject string, seq uint64) bool {
	switch {
	case r.topic != topic || r.subject != "" && r.subject != subject:
		return false
	case r.seq != 0:
		return r.seq == seq
	case r.keep:
		return true
	}
	return seq < r.below
}

// remover purges topics and deletes messages.
type remover struct {
	w  *world
	mu sync.Mutex
	is []removal
}

func newRemover(w *world) *remover { return &remover{w: w} }

func (m *remover) run() {
	_, js := m.w.connect("remover")
	rng := m.w.random("remover")
	var of []*publisher
	for _, p := range m.w.publishers {
		switch p.topic {
		case "SHRINK", "FULL", "EACH":
			of = append(of, p)
		}
	}
	for !m.w.stopped() {
		m.w.rest(rng, 60*time.Millisecond)
		p := of[rng.IntN(len(of))]
		subject, seq := p.acked(rng)
		if seq == 0 {
			continue
		}
		r := removal{topic: p.topic}
		k := rng.IntN(20)
		switch {
		case p.topic == "EACH" || k < 14:
			r.seq = seq
		case k < 16:
			r.below = seq
		case k < 18:
			r.below, r.subject = seq, subject
		default:
			r.keep, r.subject = true, subject
		}
		m.mu.Lock()
		at := len(m.is)
		m.is = append(m.is, r) // before it is asked for
		m.mu.Unlock()
		_, err := m.w.retry(func(ctx context.Context) error { return m.remove(ctx, js, &r) })
		if err != nil {
			m.w.bad("removal", "%+v: %v", r, err)
			continue
		}
		m.mu.Lock()
		m.is[at].certain = true
		m.mu.Unlock()
	}
}

func (m *remover) remove(ctx context.Context, js jetstream.JetStream, r *removal) error {
	s, err := js.Stream(ctx, r.topic)
	if err != nil {
		return err
	}
	if r.seq != 0 {
		err := s.DeleteMsg(ctx, r.seq)
		if err != nil && strings.Contains(err.Error(), "err_code=10043") { // the client hides the code
			return nil // it is gone already
		}
		return err
	}
	var opts []jetstream.StreamPurgeOpt
	if r.subject != "" {
		opts = append(opts, jetstream.WithPurgeSubject(r.subject))
	}
	if r.keep {
		opts = append(opts, jetstream.WithPurgeKeep(7))
	} else {
		opts = append(opts, jetstream.WithPurgeSequence(r.below))
	}
	return s.Purge(ctx, opts...)
}

// fate tells what removals have done to a message: it may be gone, or must be.
func (m *remover) fate(topic, subject string, seq uint64) (may, must bool) {
	for i := range m.is {
		r := &m.is[i]
		if r.takes(topic, subject, seq) {
			may = true
			must = must || r.certain && !r.keep
		}
	}
	return may, must
}
