package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// Changing a topic takes two groups and three steps: group 0 decides (the change
// is certain from here on), the topic's data group carries it out, group 0 notes
// that. A crash between the steps leaves a topic that is not settled; whoever
// leads next takes the same steps again, which does no harm where they had been
// taken. The caller is answered after the second step: the third only spares the
// next start some work.

// CreateTopic makes a topic. It is idempotent: an equal config under the same
// name gives the topic that is there, with created false. The error is a
// *topics.Fault when the client is to blame (10058, 10065, 10027, 10047, 10028,
// 10113, 10122), else ErrUnknown or an error of replication. cfg must be valid
// and complete.
func (s *State) CreateTopic(ctx context.Context, account string, cfg topics.Config) (t *Topic, created bool, err error) {
	groups := s.o.Groups
	if s.cl != nil {
		groups = catalogue.GroupsPlanned // one that was never founded would never elect a leader
	}
	r, here, err := s.decideAbout(ctx, &catalogue.Command{
		Op: catalogue.OpCreateTopic, Account: account, Config: &cfg, Limits: s.limitsOf(account), Groups: groups,
	})
	if err != nil {
		return nil, false, err
	}
	if err := s.finish(ctx, r.Topic, here); err != nil {
		return nil, false, fmt.Errorf("create topic %s: %w", cfg.Name, err)
	}
	t, ok := s.TopicByID(r.Topic.ID)
	if !ok {
		return nil, false, faultTopicNotFound // deleted meanwhile
	}
	return t, r.Created, nil
}

// UpdateTopic gives a topic another config. Faults: 10059, 10065, 10047, 10028,
// 10113, 10122, 10124. Whether the change is allowed at all is for the caller to check.
// Another number of replicas has the topic move, which goes on afterwards (move.go).
func (s *State) UpdateTopic(ctx context.Context, account string, cfg topics.Config) (*Topic, error) {
	r, err := s.decide(ctx, &catalogue.Command{
		Op: catalogue.OpUpdateTopic, Account: account, Config: &cfg, Limits: s.limitsOf(account),
	})
	if err != nil {
		return nil, err
	}
	if err := s.finish(ctx, r.Topic, false); err != nil {
		return nil, fmt.Errorf("update topic %s: %w", cfg.Name, err)
	}
	t, ok := s.TopicByID(r.Topic.ID)
	if !ok {
		return nil, faultTopicNotFound
	}
	return t, nil
}

// DeleteTopic deletes a topic with its messages and consumers; fault 10059 when
// there is none.
func (s *State) DeleteTopic(ctx context.Context, account, name string) error {
	r, here, err := s.decideAbout(ctx, &catalogue.Command{Op: catalogue.OpDeleteTopic, Account: account, Name: name})
	if err != nil {
		return err
	}
	if err := s.finish(ctx, r.Topic, here); err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	return nil
}

func (s *State) limitsOf(account string) *catalogue.Limits {
	if s.o.Limits == nil {
		return nil
	}
	l := s.o.Limits(account)
	return &l
}

// finish has the data group carry out what was decided about a topic, and this node
// know it. In a cluster the leader of group 0 has seen to the former: settling on
// many nodes at once, an older config could overtake a newer one. here tells that it was
// this node, and that it is enough to look whether the topic is there, or gone.
func (s *State) finish(ctx context.Context, t *catalogue.Topic, here bool) error {
	if t == nil {
		return nil // deleted by the first of two requests
	}
	if s.cl == nil {
		return s.settle(ctx, t.ID)
	}
	if here {
		if _, there := s.TopicByID(t.ID); there == (t.State != catalogue.Deleting) {
			return nil
		}
	}
	return s.cl.syncGroup(ctx, s.groups.get(s, t.Group))
}

// settle takes the steps that are left after a decision about a topic. Only one
// goroutine at a time does so for a topic, with the catalogue's last word, so
// that an older config can't overtake a newer one on the way to the data group.
func (s *State) settle(ctx context.Context, id topics.TopicID) error {
	turn := &s.settling[uint64(id)%uint64(len(s.settling))]
	turn.Lock()
	defer turn.Unlock()
	var t *catalogue.Topic
	s.catalogue.read(func(c *catalogue.Catalogue) { t = c.Topic(id) })
	if t == nil || t.Settled() {
		return nil
	}
	g := s.groups.find(t.Group)
	if g == nil {
		return fmt.Errorf("topic %s is in group %d, which this node does not know: start it with as many groups as before", t.Config.Name, t.Group)
	}
	kind, body, note, err := nextStep(t)
	if err != nil {
		return err
	}
	result, err := s.carryOut(ctx, g, kind, body)
	if err != nil {
		return err
	}
	if f, ok := result.(*topics.Fault); ok && f != nil && kind != topics.RecordTopicDelete {
		if t.Move != nil && f.ErrCode == faultTopicNotFound.ErrCode {
			return nil // it is between two groups; whoever moves it settles it then
		}
		return f
	}
	if t.State == catalogue.Deleting && t.Move != nil {
		if _, err := s.carryOut(ctx, s.groups.get(s, t.Move.Other), kind, body); err != nil {
			return err
		}
	}
	return s.note(t, note)
}

// carryOut has a data group take a step. A node alone doesn't give up on it: it
// would stay undone until the next start.
func (s *State) carryOut(ctx context.Context, g *Group, kind topics.RecordKind, body []byte) (any, error) {
	if s.cl == nil {
		return g.ask(context.WithoutCancel(s.ctx), kind, body)
	}
	return g.askAgain(ctx, kind, body)
}

// nextStep returns what the data group has to do for an unsettled topic, and
// what group 0 has to note afterwards.
func nextStep(t *catalogue.Topic) (kind topics.RecordKind, body []byte, note *catalogue.Command, err error) {
	body = appendTopic(nil, t.ID)
	note = &catalogue.Command{Op: catalogue.OpSyncedTopic, Topic: t.ID, Revision: t.Revision}
	switch {
	case t.State == catalogue.Deleting:
		note = &catalogue.Command{Op: catalogue.OpForgetTopic, Topic: t.ID}
		return topics.RecordTopicDelete, body, note, nil
	case t.Synced == 0:
		kind = topics.RecordTopicCreate
		body = binary.LittleEndian.AppendUint64(body, uint64(t.Created))
		body = appendText(body, t.Account)
	default:
		kind = topics.RecordTopicUpdate
	}
	body, err = topics.AppendConfig(body, &t.Config)
	return kind, body, note, err
}

// note has group 0 note that a step was taken. Nobody waits for it; when it fails it
// is at least logged, and the next leader will find the topic unsettled.
func (s *State) note(t *catalogue.Topic, cmd *catalogue.Command) error {
	return s.orders.leave(cmd, func(err error) {
		if err != nil && !errors.Is(err, ErrClosed) {
			s.o.Log.Debug("topic stays unsettled until the next start", "topic", t.Config.Name, "error", err)
		}
	})
}

// reconcile settles what was left unsettled, on the node that leads group 0. What
// is refused (the disk is full, a group doesn't have the topic) stays as it is
// until the next start: it must not keep everything else from being served.
func (s *State) reconcile() error {
	var open []topics.TopicID
	s.catalogue.read(func(c *catalogue.Catalogue) {
		open = c.Unsettled()
	})
	var errs []error
	for _, id := range open {
		if s.cl != nil && !s.IsCatalogueLeader() {
			return nil // the next leader goes on
		}
		if err := s.settleAgain(id); err != nil {
			err = fmt.Errorf("finish what was begun with topic %d: %w", id, err)
			if refused(err) {
				s.logError(err)
				continue
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *State) settleAgain(id topics.TopicID) error {
	ctx := s.ctx
	if s.cl != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(s.ctx, settleTimeout)
		defer cancel()
	}
	return s.settle(ctx, id)
}

// settleTimeout is how long a group that nobody leads keeps the others' topics from
// being settled.
const settleTimeout = 30 * time.Second

// refused tells whether an error means that a group took note of a request and
// turned it down.
func refused(err error) bool {
	var f *topics.Fault
	return errors.As(err, &f) || errors.Is(err, ErrBusy)
}
