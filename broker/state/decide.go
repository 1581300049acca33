package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/jsapi"
	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/replication/placement"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

// decide proposes a command to group 0, wherever it is led, and waits for its
// result; on return this node's catalogue has it. When ctx ends first the outcome is
// not known.
func (s *State) decide(ctx context.Context, cmd *catalogue.Command) (catalogue.Result, error) {
	r, _, err := s.decideAbout(ctx, cmd)
	return r, err
}

// decideAbout is decide; here tells that this node led group 0 when it was decided, and
// has had the data group carry out what was decided about a topic.
func (s *State) decideAbout(ctx context.Context, cmd *catalogue.Command) (r catalogue.Result, here bool, err error) {
	if s.cl != nil {
		return s.cl.decide(ctx, cmd)
	}
	r, _, err = s.decideHere(ctx, cmd)
	return r, true, err
}

// decideHere is decide where this node leads group 0. The index is the command's.
func (s *State) decideHere(ctx context.Context, cmd *catalogue.Command) (catalogue.Result, topics.Index, error) {
	o, err := s.orders.give(ctx, cmd)
	if o == nil {
		return catalogue.Result{}, 0, err
	}
	return o.result, o.index, err
}

// wanted are the kinds of groups that somebody waits for.
type wanted struct {
	mu sync.Mutex
	of map[placement.Kind]int
}

func (w *wanted) add(k placement.Kind, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[placement.Kind]int{}
	}
	if w.of[k] += by; w.of[k] <= 0 {
		delete(w.of, k)
	}
}

func (w *wanted) set() map[placement.Kind]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[placement.Kind]bool{}
	for k := range w.of {
		all[k] = true
	}
	return all
}

// groupWait is how long the leader of group 0 keeps a request that waits for a
// group to be founded.
const groupWait = 8 * time.Second

// decideLeading decides as the leader of group 0, and has the data group carry out
// what was decided about a topic.
func (c *cluster) decideLeading(ctx context.Context, cmd *catalogue.Command) (catalogue.Result, topics.Index, error) {
	r, i, err := c.decideWaiting(ctx, cmd)
	if err != nil || r.Topic == nil {
		return r, i, err
	}
	switch cmd.Op {
	case catalogue.OpCreateTopic, catalogue.OpUpdateTopic, catalogue.OpDeleteTopic:
		ctx, cancel := context.WithTimeout(ctx, groupWait)
		defer cancel()
		return r, i, c.s.settle(ctx, r.Topic.ID)
	}
	return r, i, nil
}

// decideWaiting decides. What waits for a group to take topics is kept until there
// is one.
func (c *cluster) decideWaiting(ctx context.Context, cmd *catalogue.Command) (catalogue.Result, topics.Index, error) {
	if c.s.voters() < int(c.expected.Load()) {
		return catalogue.Result{}, 0, faultUnavailable
	}
	r, i, err := c.s.decideHere(ctx, cmd)
	if r.Fault != catalogue.FaultNoGroup {
		return r, i, err
	}
	kind := placement.KindOf(catalogue.Asked(cmd.Config))
	c.wanted.add(kind, 1)
	defer c.wanted.add(kind, -1)
	ctx, cancel := context.WithTimeout(ctx, groupWait)
	defer cancel()
	for {
		news := c.news.wait()
		if f := c.suitable(cmd.Config); f != nil {
			return catalogue.Result{}, 0, f
		}
		c.wake()
		if c.takes(cmd.Config) {
			if r, i, err = c.s.decideHere(ctx, cmd); r.Fault != catalogue.FaultNoGroup {
				return r, i, err
			}
		}
		if !c.s.IsCatalogueLeader() {
			return catalogue.Result{}, 0, replication.ErrNotLeader
		}
		select {
		case <-news:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return catalogue.Result{}, 0, faultUnavailable
		}
	}
}

// suitable refuses what not enough nodes can hold, in nats-server's words. While not even
// this node has been entered, which it is soon, that isn't known.
func (c *cluster) suitable(cfg *topics.Config) *topics.Fault {
	if _, known := c.node(c.me); !known {
		return nil
	}
	replicas, tags := catalogue.Asked(cfg)
	active, fit := 0, 0
	var missing []string
	for _, n := range c.s.tables().nodes {
		if n.State != catalogue.Active {
			continue
		}
		active++
		if placement.Carries(n.Tags, tags) {
			fit++
			continue
		}
		for _, t := range tags {
			if !slices.Contains(n.Tags, t) && !slices.Contains(missing, t) {
				missing = append(missing, t)
			}
		}
	}
	switch {
	case fit >= replicas:
		return nil
	case active >= replicas:
		return jsapi.NoPeers("no suitable peers for placement, tags not matched ['" + strings.Join(missing, "', '") + "']")
	}
	return jsapi.NoPeers("no suitable peers for placement")
}

// takes tells whether there is a group for new topics such as this.
func (c *cluster) takes(cfg *topics.Config) bool {
	return slices.ContainsFunc(c.s.tables().groups, func(g *catalogue.Group) bool { return g.Open && g.Fits(cfg) })
}

// decide asks the leader again when it isn't known whether it did what it was asked:
// these commands do no harm the second time.
func (c *cluster) decide(ctx context.Context, cmd *catalogue.Command) (r catalogue.Result, here bool, err error) {
	again := false
	for {
		r, here, err = c.decideOnce(ctx, cmd)
		switch {
		case errors.Is(err, ErrUnknown) && cmd.Op != catalogue.OpAdvertise && cmd.Op != catalogue.OpWithdraw && c.pause(ctx, 50*time.Millisecond):
			again = true
			continue
		case again && cmd.Op == catalogue.OpCreateTopic && err == nil:
			r.Created = true // by the first, as far as anybody can tell
		case again && cmd.Op == catalogue.OpDeleteTopic && errors.Is(err, catalogue.FaultTopicNotFound):
			return catalogue.Result{}, here, nil
		}
		return r, here, err
	}
}

func (c *cluster) decideOnce(ctx context.Context, cmd *catalogue.Command) (r catalogue.Result, here bool, err error) {
	request, err := cmd.Encode()
	if err != nil {
		return r, false, err
	}
	answer, err := c.callLeader(ctx, topics.CatalogueGroup, methodDecide, request, func() ([]byte, error) {
		var err error
		r, _, err = c.decideLeading(ctx, cmd)
		if errors.Is(err, replication.ErrNotLeader) {
			return nil, err
		}
		here = true
		return appendAnswer(nil, 0, err), nil
	})
	if err != nil {
		return catalogue.Result{}, false, err
	}
	b := bodyOf(answer)
	i, err := b.answer()
	if err != nil || here {
		return r, here, err
	}
	if err := json.Unmarshal(b.rest, &r); err != nil {
		return catalogue.Result{}, false, fmt.Errorf("read the result of %s: %w", cmd.Op, err)
	}
	if n := cmd.Node; n != nil && n.Name == c.me && n.State == catalogue.Removed {
		return r, false, nil // it will not get here
	}
	if meta := c.s.meta.Load(); meta != nil {
		if err := meta.WaitApplied(ctx, i); err != nil {
			return catalogue.Result{}, false, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	return r, false, nil
}

func (c *cluster) answerDecide(ctx context.Context, _ string, request []byte) ([]byte, error) {
	cmd, err := catalogue.DecodeCommand(request)
	if err != nil {
		return nil, err
	}
	if !c.s.IsCatalogueLeader() {
		return []byte{answerNotLeader}, nil
	}
	r, i, err := c.decideLeading(ctx, cmd)
	if err != nil {
		return appendAnswer(nil, 0, err), nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return append(appendAnswer(nil, i, nil), b...), nil
}

// voters returns how many vote in group 0.
func (s *State) voters() int {
	if meta := s.meta.Load(); meta != nil {
		return meta.Voters()
	}
	return 0
}
