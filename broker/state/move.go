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
	"github.com/heraldmq/herald/topics/catalogue"
	"github.com/heraldmq/herald/topics/store"
)

// A topic moves to another group when it is to have another number of replicas. Group
// 0 decides (topics/catalogue), and its leader takes the steps, each of which does no
// harm the second time:
//
//	copy     the leader of the group it goes to fetches it from the one it leaves, and
//	         has its group agree on each piece, while the topic goes on changing
//	freeze   the group it leaves agrees that nothing changes any more
//	copy     the rest, and compare
//	switch   group 0 agrees that it lives in the other group
//	open     that group begins to serve it
//	drop     the group it left forgets it
//
// Until the switch the move can go back, and does when a frozen topic isn't switched
// soon. A leader of group 0 that has lost its lead can't switch; its passes have lower
// numbers than those of the next, so that what it still asks for has no effect.

// The rhythm of moves.
const (
	movesAtOnce  = 4
	movePasses   = 4                      // before the freeze, at most
	movePassFast = 300 * time.Millisecond // a pass so quick needs no other one before the freeze
	moveFrozen   = 4 * time.Second        // the longest that a topic is frozen before the move goes back
	movePass     = 10 * time.Minute       // the longest pass
	moveRetry    = time.Second
)

// moves are the topics that this node moves, as the leader of group 0.
type moves struct {
	mu     sync.Mutex
	active map[topics.TopicID]bool
	pass   uint64
}

// startMoves moves the topics that are to be moved.
func (c *cluster) startMoves() {
	var all []*catalogue.Topic
	c.s.catalogue.read(func(k *catalogue.Catalogue) { all = k.Moving() })
	m := &c.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range all {
		if m.active[t.ID] || len(m.active) >= movesAtOnce {
			continue
		}
		if m.active == nil {
			m.active = map[topics.TopicID]bool{}
		}
		m.active[t.ID] = true
		if !c.s.spawn(func() {
			c.moveTopic(c.s.ctx, t.ID)
			m.mu.Lock()
			delete(m.active, t.ID)
			m.mu.Unlock()
		}) {
			delete(m.active, t.ID)
		}
	}
}

// newPass returns the number of a pass: higher than all before, whoever led group 0.
func (c *cluster) newPass() uint64 {
	m := &c.moves
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pass = max(m.pass, c.s.meta.Load().Term()<<32) + 1
	return m.pass
}

// moveTopic takes the steps of a topic's move until it has ended, or this node doesn't
// lead group 0 any more.
func (c *cluster) moveTopic(ctx context.Context, id topics.TopicID) {
	for ctx.Err() == nil && c.s.IsCatalogueLeader() {
		var t *catalogue.Topic
		c.s.catalogue.read(func(k *catalogue.Catalogue) { t = k.Topic(id) })
		if t == nil || t.Move == nil || t.State == catalogue.Deleting {
			return
		}
		err := c.moveStep(ctx, t)
		if err == nil {
			continue
		}
		c.s.o.Log.Warn("a topic has not been moved yet; it is tried again", "topic", t.Config.Name, "account", t.Account,
			"from", t.Group, "other", t.Move.Other, "switched", t.Move.Switched, "error", err)
		sleep(ctx, moveRetry)
	}
}

// mover is a topic on its way.
type mover struct {
	c        *cluster
	id       topics.TopicID
	number   uint64
	from, to *Group
}

// moveStep takes the steps up to the next decision of group 0.
func (c *cluster) moveStep(ctx context.Context, t *catalogue.Topic) error {
	here, other := c.s.groups.get(c.s, t.Group), c.s.groups.get(c.s, t.Move.Other)
	m := &mover{c: c, id: t.ID, number: t.Move.Number, from: here, to: other}
	step := catalogue.MoveDone
	var err error
	switch {
	case t.Move.Cancelled:
		err = errors.Join(m.ask(ctx, m.from, 0, store.MoveCancel), m.drop(ctx, m.to))
	case t.Move.Switched:
		m.from, m.to = other, here
		if err = m.ask(ctx, m.to, 0, store.MoveOpen); err == nil {
			err = m.drop(ctx, m.from)
		}
	default:
		step = catalogue.MoveSwitch
		err = m.bring(ctx)
	}
	if err != nil {
		return err
	}
	// Without a deadline: what this node proposed it must know the end of.
	_, _, err = c.s.decideHere(c.s.ctx, &catalogue.Command{Op: catalogue.OpMoveTopic, Topic: t.ID, Revision: m.number, Step: step})
	if errors.Is(err, catalogue.FaultStale) {
		return nil // it has been cancelled meanwhile
	}
	if err != nil || step == catalogue.MoveSwitch {
		return err
	}
	c.s.o.Log.Info("a topic has moved", "topic", t.Config.Name, "account", t.Account, "from", m.from.id, "to", m.to.id, "cancelled", t.Move.Cancelled)
	return c.s.settleAgain(t.ID) // its config may have changed on the way
}

// bring copies the topic until the other group has all of it, and leaves it frozen.
func (m *mover) bring(ctx context.Context) error {
	for range movePasses {
		began := time.Now()
		if err := m.pull(ctx, m.c.newPass(), false, movePass); err != nil {
			return fmt.Errorf("copy it: %w", err)
		}
		if time.Since(began) < movePassFast {
			break
		}
	}
	pass := m.c.newPass()
	began := time.Now()
	err := m.freeze(ctx, pass)
	if err == nil {
		err = m.pull(ctx, pass, true, moveFrozen)
	}
	if err == nil {
		m.c.s.o.Log.Info("a topic is copied", "topic", m.id, "from", m.from.id, "to", m.to.id, "frozen", time.Since(began))
		return nil
	}
	thaw, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if e := m.ask(thaw, m.from, pass, store.MoveThaw); e != nil && !stale(e) {
		err = errors.Join(err, fmt.Errorf("take the freeze back: %w", e))
	}
	return fmt.Errorf("copy the rest of it: %w", err)
}

// ask has a group agree on a step.
func (m *mover) ask(ctx context.Context, g *Group, pass uint64, step store.MoveStep) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	result, err := g.askAgain(ctx, topics.RecordTopicMove, appendMove(nil, m.id, m.number, pass, step))
	if err != nil {
		return fmt.Errorf("step %d in group %d: %w", step, g.id, err)
	}
	if f, ok := result.(*topics.Fault); ok && f != nil {
		return f
	}
	return nil
}

// drop has a group forget what it has of the topic. That there is nothing is fine.
func (m *mover) drop(ctx context.Context, g *Group) error {
	err := m.ask(ctx, g, 0, store.MoveDrop)
	if errors.Is(err, faultTopicNotFound) || stale(err) {
		return nil
	}
	return err
}

func stale(err error) bool {
	var f *topics.Fault
	return errors.As(err, &f) && f.ErrCode == store.CodeMoveStale
}

// appendMove appends the body of a record of a move; what the step has follows.
func appendMove(dst []byte, id topics.TopicID, number, pass uint64, step store.MoveStep) []byte {
	dst = binary.LittleEndian.AppendUint64(appendTopic(dst, id), number)
	return append(binary.LittleEndian.AppendUint64(dst, pass), byte(step))
}

// applyMove applies a record of a move.
func (m *dataMachine) applyMove(b *body) (any, error) {
	id, number, pass, step := b.topic(), b.u64(), b.u64(), store.MoveStep(b.u8())
	if err := b.err(topics.RecordTopicMove); err != nil {
		return nil, err
	}
	did, f, err := m.data.Move(id, number, pass, step, b.rest)
	if err != nil {
		return nil, err
	}
	switch did {
	case store.MovedAway:
		m.held.drop(id)
		m.changes = append(m.changes, change{topic: id, what: Frozen})
	case store.MovedHere:
		account, kind, consumers := m.data.Holding(id)
		m.held.add(id, account, kind)
		for _, name := range consumers {
			m.held.addConsumer(id, name)
		}
		m.changes = append(m.changes, change{topic: id, what: Moved})
	case store.MovedOut:
		m.held.drop(id)
		m.changes = append(m.changes, change{topic: id, what: Deleted})
	}
	if f == nil {
		return nil, nil
	}
	return f, nil
}

// MoveTopic has a topic move to another group of as many replicas as it has. It goes on
// afterwards.
func (s *State) MoveTopic(ctx context.Context, t *Topic, to topics.GroupID) error {
	if s.cl == nil {
		return ErrAlone
	}
	_, err := s.decide(ctx, &catalogue.Command{Op: catalogue.OpMoveTopic, Topic: t.id, Step: catalogue.MoveStart, Target: to})
	return err
}

// errMoving is why something can't be done with a topic that moves: nothing came of it.
var errMoving = fmt.Errorf("the topic is between two groups: %w", replication.ErrNotLeader)
