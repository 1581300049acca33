package state

import (
	"context"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// told is an answer that waits for no entry: a message of a batch was taken, or
// refused.
type told struct {
	account *front.Account
	node    string // whose client asked; "" for this one
	reply   string
	body    []byte
}

// tell has an answer sent to a publisher, once the queue's mu is free.
func (q *queue) tell(t *Topic, account *front.Account, node, reply string, body []byte) {
	if reply != "" && !t.noAck.Load() {
		q.tells = append(q.tells, told{account, node, reply, body})
	}
}

// tellFault has a refusal sent, if there is one.
func (q *queue) tellFault(t *Topic, m *front.Captured, node string, f *topics.Fault) {
	if f != nil {
		q.tell(t, m.Account, node, string(m.Reply), appendPubAck(nil, t, "", &topics.PublishResult{Fault: f}))
	}
}

// teller sends such answers from any goroutine.
type teller struct {
	replier func(*front.Account) Replier // nil: nobody is answered

	mu       sync.Mutex
	repliers map[*front.Account]Replier
}

func (t *teller) send(list []told) {
	if t.replier == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	touched := map[*front.Account]Replier{}
	for _, s := range list {
		r := t.repliers[s.account]
		if r == nil {
			if t.repliers == nil {
				t.repliers = map[*front.Account]Replier{}
			}
			r = t.replier(s.account)
			t.repliers[s.account] = r
		}
		r.Answer(s.node, s.reply, nil, s.body)
		touched[s.account] = r
	}
	for _, r := range touched {
		r.Flush()
	}
}

// abandoned is an atomic batch that was given up.
type abandoned struct {
	topic   *Topic
	id, why string
}

func (q *queue) abandoned(t *Topic, id, why string) {
	q.gone = append(q.gone, abandoned{t, id, why})
	q.nudge()
}

func (q *queue) nudge() {
	select {
	case q.swept <- struct{}{}:
	default:
	}
}

// sweep gives up the batches whose publishers have gone silent, and tells of those
// given up, until ctx ends.
func (q *queue) sweep(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.swept:
		case <-timer.C:
		}
		q.mu.Lock()
		now := q.now()
		next := q.staging.sweep(now, q.abandonedLocked)
		if at := q.fasts.sweep(now); at != 0 && (next == 0 || at < next) {
			next = at
		}
		gone := q.gone
		q.gone = nil
		q.mu.Unlock()
		for _, a := range gone {
			if q.onGone != nil {
				q.onGone(a.topic, a.id, a.why)
			}
		}
		if next != 0 {
			timer.Reset(time.Duration(next-now) + time.Millisecond)
		}
	}
}

func (q *queue) abandonedLocked(t *Topic, id, why string) {
	q.gone = append(q.gone, abandoned{t, id, why})
}

// dropBatches forgets the batches under way: this node no longer leads.
func (q *queue) dropBatches() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.staging.drop()
	q.fasts.drop()
}
