package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// What is asked of the same leader about the same group at once goes there together: a
// thousand topics that are being made cost some calls, and not a thousand.
//
//	state.asks  group u32, for each: length u32, kind u8, body
//	            → an answer; with answerDone, for each: length u32, its answer
const methodAsks = "state.asks"

const (
	askersInFlight = 2         // calls to one leader about one group
	askersMax      = 512       // questions in one
	askersBytes    = 256 << 10 // and their bytes; what doesn't fit goes alone
	askersTimeout  = 30 * time.Second
)

type askers struct {
	mu sync.Mutex
	of map[askerKey]*asker
}

type askerKey struct {
	leader string
	group  topics.GroupID
}

// asker is the way to one leader of one group.
type asker struct {
	next    []*question
	bytes   int
	running int
}

type question struct {
	body   []byte // kind, body
	done   chan struct{}
	answer []byte
	err    error
}

// askTogether asks a leader; request is that of state.ask, and the answer one to it.
func (c *cluster) askTogether(ctx context.Context, leader string, g topics.GroupID, request []byte) ([]byte, error) {
	q := &question{body: request[4:], done: make(chan struct{})}
	if !c.askers.add(c, askerKey{leader, g}, q) {
		return c.net.Call(ctx, leader, methodAsk, request)
	}
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// add lets a question go with the next call; false when there is no room in it.
func (a *askers) add(c *cluster, k askerKey, q *question) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.of[k]
	if w == nil {
		w = &asker{}
		if a.of == nil {
			a.of = map[askerKey]*asker{}
		}
		a.of[k] = w
	}
	if len(w.next) >= askersMax || w.bytes+len(q.body) > askersBytes {
		return false
	}
	if w.running < askersInFlight {
		if !c.s.spawn(func() { a.run(c, k, w) }) {
			return false
		}
		w.running++
	}
	w.next = append(w.next, q)
	w.bytes += len(q.body)
	return true
}

// run makes calls for as long as there are questions. It is a goroutine.
func (a *askers) run(c *cluster, k askerKey, w *asker) {
	for {
		a.mu.Lock()
		all := w.next
		w.next, w.bytes = nil, 0
		if len(all) == 0 {
			w.running--
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		c.callTogether(k, all)
		for _, q := range all {
			close(q.done)
		}
	}
}

// callTogether makes one call and fills the questions' answers in.
func (c *cluster) callTogether(k askerKey, all []*question) {
	ctx, cancel := context.WithTimeout(c.s.ctx, askersTimeout)
	defer cancel()
	request := binary.LittleEndian.AppendUint32(nil, uint32(k.group))
	if len(all) == 1 {
		all[0].answer, all[0].err = c.net.Call(ctx, k.leader, methodAsk, append(request, all[0].body...))
		return
	}
	for _, q := range all {
		request = appendPart(request, q.body)
	}
	answer, err := c.net.Call(ctx, k.leader, methodAsks, request)
	b := bodyOf(answer)
	if err == nil {
		_, err = b.answer()
	}
	for _, q := range all {
		if q.err = err; err != nil {
			continue
		}
		if q.answer = b.part(); b.bad {
			q.err = errShortAnswer
		}
	}
}

func appendPart(dst, part []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(part)))
	return append(dst, part...)
}

// part reads what appendPart wrote.
func (b *body) part() []byte {
	n := b.u32()
	if uint64(n) > uint64(len(b.rest)) {
		b.bad, b.rest = true, nil
		return nil
	}
	p := b.rest[:n:n]
	b.rest = b.rest[n:]
	return p
}

// answerAsks answers questions of another node that came together.
func (c *cluster) answerAsks(ctx context.Context, _ string, request []byte) ([]byte, error) {
	b := bodyOf(request)
	id := topics.GroupID(b.u32())
	if b.bad {
		return nil, errShortAnswer
	}
	g := c.s.groups.find(id)
	if g == nil || !g.IsLeader() {
		return []byte{answerNotLeader}, nil
	}
	r := g.local.Load()
	if r == nil {
		return []byte{answerNotLeader}, nil
	}
	type given struct {
		result any
		err    error
	}
	var all []chan given
	for len(b.rest) > 0 && !b.bad {
		p := bodyOf(b.part())
		kind := topics.RecordKind(p.u8())
		if b.bad || p.bad {
			return nil, errShortAnswer
		}
		one := make(chan given, 1)
		all = append(all, one)
		r.queue.submit(kind, p.rest, func(result any, err error) { one <- given{result, err} })
	}
	answers := make([]given, len(all))
	for i, one := range all {
		select {
		case answers[i] = <-one:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	log := r.repl.Load()
	if log == nil {
		return []byte{answerUnknown}, nil
	}
	out := appendAnswer(nil, 0, nil)
	committed := log.Committed()
	for i := range answers {
		one := appendAnswer(nil, committed, answers[i].err)
		if answers[i].err == nil {
			var err error
			if one, err = appendResult(one, answers[i].result); err != nil {
				return nil, err
			}
		}
		out = appendPart(out, one)
	}
	return out, nil
}

// lost tells whether an answer means that who was asked does not lead.
func lost(answer []byte, err error) bool {
	return err == nil && len(answer) > 0 && (answer[0] == answerNotLeader || answer[0] == answerClosed) ||
		errors.Is(err, replication.ErrNotLeader)
}
