package broker

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heraldmq/herald/broker/config"
	"github.com/heraldmq/herald/broker/delivery"
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/broker/state"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/store"
)

// engines are the delivery engines of the groups that this node has a replica of.
// Reading takes no lock.
type engines struct {
	mu sync.Mutex
	m  atomic.Pointer[map[topics.GroupID]*delivery.Engine] // never changed in place
}

// of returns the engine of a group, nil where this node has no replica.
func (e *engines) of(id topics.GroupID) *delivery.Engine {
	if m := e.m.Load(); m != nil {
		return (*m)[id]
	}
	return nil
}

func (e *engines) all() []*delivery.Engine {
	if m := e.m.Load(); m != nil {
		return slices.Collect(maps.Values(*m))
	}
	return nil
}

// set puts a group's engine in place, nil for none, and returns the one before.
func (e *engines) set(id topics.GroupID, engine *delivery.Engine) *delivery.Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := map[topics.GroupID]*delivery.Engine{}
	if m := e.m.Load(); m != nil {
		next = maps.Clone(*m)
	}
	old := next[id]
	if engine == nil {
		delete(next, id)
	} else {
		next[id] = engine
	}
	e.m.Store(&next)
	return old
}

// onGroup makes the engine of a group whose replica came to this node, and ends
// that of one whose replica left.
func (d *durable) onGroup(g *state.Group, local bool) {
	var engine *delivery.Engine
	if local {
		engine = delivery.New(d.engineOptions(g, d.b.options.Load()))
	}
	if old := d.engines.set(g.ID(), engine); old != nil {
		old.Close()
	}
}

// onTopic lets the front capture for a topic, or no longer. It runs where
// entries are applied and doesn't block.
func (d *durable) onTopic(t *state.Topic, c state.Change) {
	if e := d.engines.of(t.Group().ID()); e != nil {
		switch c {
		case state.Deleted:
			e.TopicDeleted(t.ID())
		case state.Frozen:
			e.TopicFrozen(t.ID())
		case state.Moved:
			e.TopicArrived(t.ID())
		}
	}
	d.copies.TopicChanged(t, c)
	d.plans.TopicChanged(t, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.interests[t.ID()]
	var want []string
	if c != state.Deleted {
		want = t.Config().Subjects
	}
	// All subjects of a topic go the same way, also once it has moved: what a client
	// publishes to several of them stays in order. The group passes on what has left it.
	sink := t.Group()
	for subject, i := range have {
		if g, ok := i.Sink().(*state.Group); ok {
			sink = g
		}
		if !slices.Contains(want, subject) {
			i.Remove()
			delete(have, subject)
		}
	}
	if len(want) == 0 {
		delete(d.interests, t.ID())
		return
	}
	a := d.b.front.Account(t.Account())
	if a == nil {
		d.b.cfg.Log.Warn("A topic belongs to an account that is not configured; nothing is captured for it",
			"topic", t.Name(), "account", t.Account())
		return
	}
	if have == nil {
		have = map[string]*front.TopicInterest{}
		d.interests[t.ID()] = have
	}
	for _, subject := range want {
		if have[subject] == nil {
			have[subject] = a.AddTopic(t.ID(), sink.ID(), []string{subject}, sink)
		}
	}
}

// engineOptions joins a group to its delivery engine.
func (d *durable) engineOptions(g *state.Group, o *config.Options) delivery.Options {
	return delivery.Options{
		Topic: func(id topics.TopicID) delivery.Topic {
			if t := g.Store().Topic(id); t != nil {
				return t
			}
			return nil
		},
		Topics: func(f func(delivery.Topic) bool) {
			g.Store().Topics(func(t *store.Topic) bool { return f(t) })
		},
		Account: func(name string) delivery.Account {
			if a := d.b.front.Account(name); a != nil {
				return account{a}
			}
			return nil
		},
		Proposer: g,
		Letters:  &d.letters,
		Filters:  d.b.filters,
		DeleteConsumer: func(id topics.TopicID, name string) {
			select {
			case d.unused <- unusedConsumer{id, name}:
			default: // the engine asks again
			}
		},
		Domain: o.JetStream.Domain,
		Now:    d.state.Now,
		Log:    d.b.cfg.Log,
	}
}

// account is a front.Account as the engine wants it.
type account struct{ *front.Account }

// NewPublisher returns a publisher for one goroutine.
func (a account) NewPublisher() delivery.Publisher { return a.Account.NewPublisher() }
