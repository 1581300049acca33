package delivery

import "github.com/heraldmq/herald/topics"

// A topic that moves to another group leaves this engine as if the lead had gone, but
// for itself alone, and comes to another one.

// TopicLeaving tells that a topic is about to be frozen: its readers end, what they did
// is proposed before the call returns, and new ones aren't made until TopicArrived.
func (e *Engine) TopicLeaving(id topics.TopicID) {
	t := e.detach(id, true)
	e.recorder.flush()
	if t != nil {
		t.end(statusLeadership)
	}
}

// TopicFrozen tells that a topic is frozen. It may be called where entries are applied.
func (e *Engine) TopicFrozen(id topics.TopicID) {
	if t := e.detach(id, false); t != nil {
		t.end(statusLeadership)
	}
}

// TopicArrived tells that a topic is served by the engine's group from now on, or again.
// It may be called where entries are applied.
func (e *Engine) TopicArrived(id topics.TopicID) {
	e.mu.Lock()
	delete(e.leaving, id)
	e.mu.Unlock()
	if !e.leads.Load() {
		return
	}
	e.pool.call(func() {
		t := e.o.Topic(id)
		if t == nil {
			return
		}
		e.topic(id) // so that acknowledgements find it
		for _, name := range t.ConsumerNames() {
			e.arouse(t, name)
		}
	})
}

// detach takes a topic out of the engine.
func (e *Engine) detach(id topics.TopicID, leaving bool) *topic {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.leaving, id)
	if leaving {
		if e.leaving == nil {
			e.leaving = map[topics.TopicID]bool{}
		}
		e.leaving[id] = true
	}
	t := e.topics[id]
	delete(e.topics, id)
	if t != nil && e.accounts[t.account][t.name] == t {
		delete(e.accounts[t.account], t.name)
		if len(e.accounts[t.account]) == 0 {
			delete(e.accounts, t.account)
		}
	}
	return t
}
