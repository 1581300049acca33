package state

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// What nodes ask each other while a topic moves. Requests are JSON.
//
//	state.move    moveRequest → answer without a result: the leader of a group freezes
//	              a topic, or fetches a pass of its copy
//	state.depart  moveRequest → any number of: length u32, step u8, what it has; the end
//	              is a length of 0, an error the highest length there is and a text
const (
	methodMove   = "state.move"
	methodDepart = "state.depart"
)

type moveRequest struct {
	Topic  topics.TopicID   `json:"topic"`
	From   topics.GroupID   `json:"from"`
	To     topics.GroupID   `json:"to"`
	Number uint64           `json:"number"`
	Pass   uint64           `json:"pass"`
	Freeze bool             `json:"freeze,omitempty"`
	Last   bool             `json:"last,omitempty"`
	Cursor store.MoveCursor `json:"cursor,omitzero"` // state.depart
}

// departFailed is the length that stands for an error.
const departFailed = ^uint32(0)

// copyWindow is how many pieces of a copy are proposed at once.
const copyWindow = 16

func (m *mover) request(pass uint64) moveRequest {
	return moveRequest{Topic: m.id, From: m.from.id, To: m.to.id, Number: m.number, Pass: pass}
}

// pull has the group the topic goes to fetch a pass.
func (m *mover) pull(ctx context.Context, pass uint64, last bool, most time.Duration) error {
	q := m.request(pass)
	q.Last = last
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return m.c.askMove(ctx, m.to.id, &q)
}

// freeze has the group that the topic leaves freeze it.
func (m *mover) freeze(ctx context.Context, pass uint64) error {
	q := m.request(pass)
	q.Freeze = true
	ctx, cancel := context.WithTimeout(ctx, moveFrozen)
	defer cancel()
	return m.c.askMove(ctx, m.from.id, &q)
}

func (c *cluster) askMove(ctx context.Context, id topics.GroupID, q *moveRequest) error {
	request, err := json.Marshal(q)
	if err != nil {
		return err
	}
	answer, err := c.callLeader(ctx, id, methodMove, request, func() ([]byte, error) {
		return c.answerMove(ctx, c.me, request)
	})
	if err != nil {
		return err
	}
	b := bodyOf(answer)
	_, err = b.answer()
	return err
}

func (c *cluster) answerMove(ctx context.Context, _ string, request []byte) ([]byte, error) {
	var q moveRequest
	if err := json.Unmarshal(request, &q); err != nil {
		return nil, err
	}
	if q.Freeze {
		return appendAnswer(nil, 0, c.freezeHere(&q)), nil
	}
	return appendAnswer(nil, 0, c.fetch(ctx, &q)), nil
}

// freezeHere freezes a topic of a group that this node leads. What is captured for it
// from now on waits until it is served again, here or elsewhere.
func (c *cluster) freezeHere(q *moveRequest) error {
	g := c.s.groups.get(c.s, q.From)
	r := g.local.Load()
	if r == nil || !r.isLeader() {
		return replication.ErrNotLeader
	}
	t, ok := c.s.TopicByID(q.Topic)
	if !ok {
		return faultTopicNotFound
	}
	if t.Group() != g {
		return errMoving
	}
	r.queue.hold(t)
	if c.s.hooks.OnLeaving != nil {
		c.s.hooks.OnLeaving(t)
	}
	// The freeze may take effect after a deadline: then it must be known.
	result, err := g.askHere(r.ctx, topics.RecordTopicMove, appendMove(nil, q.Topic, q.Number, q.Pass, store.MoveFreeze))
	f, _ := result.(*topics.Fault)
	if err == nil && f == nil {
		return nil
	}
	c.s.mu.Lock()
	if t.Group() == g && r.data.Topic(t.id) != nil {
		t.held.Store(false)
		c.s.tellTopicLocked(t, Moved)
	}
	c.s.mu.Unlock()
	if err == nil {
		err = f
	}
	return err
}

// fetch fetches a pass of a topic's copy, for a group that this node leads.
func (c *cluster) fetch(ctx context.Context, q *moveRequest) error {
	g := c.s.groups.get(c.s, q.To)
	r := g.local.Load()
	if r == nil || !r.isLeader() {
		return replication.ErrNotLeader
	}
	q.Cursor = r.data.Arriving(q.Topic, q.Number)
	in := &intake{r: r, q: q, slots: make(chan struct{}, copyWindow)}
	leader := c.leader(q.From)
	var err error
	switch leader {
	case "":
		return errors.New("nobody leads the group it is in")
	case c.me:
		err = c.depart(q, func(step store.MoveStep, body []byte) error { return in.take(ctx, step, body) })
	default:
		err = c.fetchFrom(ctx, leader, q, in)
	}
	return errors.Join(err, in.wait())
}

func (c *cluster) fetchFrom(ctx context.Context, leader string, q *moveRequest, in *intake) error {
	request, err := json.Marshal(q)
	if err != nil {
		return err
	}
	stream, err := c.net.OpenStream(ctx, leader, methodDepart, request)
	if err != nil {
		return fmt.Errorf("ask %s for it: %w", leader, err)
	}
	defer stream.Close()
	from := bufio.NewReaderSize(stream, 64<<10)
	for {
		var head [4]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return fmt.Errorf("the copy from %s breaks off: %w", leader, err)
		}
		n := binary.LittleEndian.Uint32(head[:])
		switch {
		case n == 0:
			return nil
		case n == departFailed:
			why, err := io.ReadAll(io.LimitReader(from, 4096))
			return errors.Join(fmt.Errorf("%s can't give it: %s", leader, why), err)
		case n > parcelMax:
			return fmt.Errorf("a piece of %d bytes from %s", n, leader)
		}
		piece := make([]byte, n)
		if _, err := io.ReadFull(from, piece); err != nil {
			return fmt.Errorf("the copy from %s breaks off: %w", leader, err)
		}
		if err := in.take(ctx, store.MoveStep(piece[0]), piece[1:]); err != nil {
			return err
		}
	}
}

// depart gives the steps of a pass, where the group that the topic leaves is led.
func (c *cluster) depart(q *moveRequest, emit func(store.MoveStep, []byte) error) error {
	g := c.s.groups.get(c.s, q.From)
	r := g.local.Load()
	if r == nil || !r.isLeader() {
		return replication.ErrNotLeader
	}
	return r.data.Depart(q.Topic, q.Pass, q.Last, q.Cursor, emit)
}

func (c *cluster) answerDepart(ctx context.Context, _ string, request []byte, w io.Writer) error {
	var q moveRequest
	if err := json.Unmarshal(request, &q); err != nil {
		return err
	}
	err := c.depart(&q, func(step store.MoveStep, body []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := binary.LittleEndian.AppendUint32(make([]byte, 0, 5+len(body)), uint32(1+len(body)))
		_, err := w.Write(append(append(piece, byte(step)), body...))
		return err
	})
	end := make([]byte, 4)
	if err != nil {
		binary.LittleEndian.PutUint32(end, departFailed)
		end = append(end, err.Error()...)
	}
	_, err = w.Write(end)
	return err
}

// intake proposes what is fetched.
type intake struct {
	r     *replica
	q     *moveRequest
	slots chan struct{}

	mu     sync.Mutex
	failed error
}

// take proposes a piece, as soon as there is room for it.
func (in *intake) take(ctx context.Context, step store.MoveStep, body []byte) error {
	for in.r.pressed() { // publishers wait too
		if !sleep(ctx, 5*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	select {
	case in.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	in.mu.Lock()
	err := in.failed
	in.mu.Unlock()
	if err != nil {
		<-in.slots
		return err
	}
	record := append(appendMove(make([]byte, 0, 25+len(body)), in.q.Topic, in.q.Number, in.q.Pass, step), body...)
	in.r.queue.submit(topics.RecordTopicMove, record, func(result any, err error) {
		if f, ok := result.(*topics.Fault); err == nil && ok && f != nil {
			err = f
		}
		if err != nil {
			in.mu.Lock()
			if in.failed == nil {
				in.failed = fmt.Errorf("step %d: %w", step, err)
			}
			in.mu.Unlock()
		}
		<-in.slots
	})
	return nil
}

// wait waits until all that was proposed has been applied.
func (in *intake) wait() error {
	for range cap(in.slots) {
		in.slots <- struct{}{}
	}
	return in.failed
}
