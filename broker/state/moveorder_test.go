package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics/catalogue"
)

// capture captures numbered messages on a node, without waiting for answers.
func (f *fleet) capture(on string, topic *Topic, from, to int) {
	at, _ := f.nodes[on].TopicByID(topic.ID())
	for i := from; i < to; i++ {
		at.Group().Capture([]front.Captured{{Topic: at.ID(), Subject: []byte("t.x"), Payload: fmt.Appendf(nil, "%s/%d", on, i)}})
	}
}

// inOrder checks that a topic has the messages of some nodes, each in the order in which
// it captured them.
func (f *fleet) inOrder(topic string, n int, nodes ...string) {
	f.Helper()
	f.wait("all is stored", func() (bool, string) {
		for _, on := range f.names() {
			if t, ok := f.nodes[on].Topic("A", topic); ok && t.Group().IsLeader() && t.Data() != nil {
				st := t.Data().State()
				return st.Messages == uint64(n*len(nodes)), fmt.Sprintf("%d of %d on %s", st.Messages, n*len(nodes), on)
			}
		}
		return false, "nobody leads"
	})
	f.same(topic)
	t, _ := f.nodes[f.names()[0]].Topic("A", topic)
	next := map[string]int{}
	st := t.Data().State()
	for seq := st.First; seq <= st.Last; seq++ {
		m, err := t.Data().Load(seq)
		if err != nil {
			f.Fatal(err)
		}
		var on string
		var i int
		if _, err := fmt.Sscanf(string(m.Payload), "%1s/%d", &on, &i); err != nil {
			f.Fatal(err)
		}
		if i != next[on] {
			f.Errorf("sequence %d is %s, want number %d of it", seq, m.Payload, next[on])
		}
		next[on] = i + 1
	}
}

// TestAPublishersOrderOutlivesAMove has each node hear of the switch at another time, and
// before anybody is ready for it: what was captured before waits at the node that leads
// the group that the topic leaves, what is captured afterwards is for another one. What
// each node captured must be stored in that order.
func TestAPublishersOrderOutlivesAMove(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	topic := f.create("a", replicated(3, "T", "t.>"))
	f.notLeading("T")
	f.calm()
	var to *Group
	for _, g := range f.nodes["a"].AllGroups() {
		if g.Replicas() == 3 && g != topic.Group() && g.Leader() != "" {
			to = g
		}
	}
	if to == nil {
		t.Fatal("no other group of three")
	}
	lead := topic.Group().Leader()
	const each = 30
	for _, on := range f.names() {
		f.capture(on, topic, 0, each/3)
	}
	f.wait("the first are stored", func() (bool, string) {
		n := topic.Data().State().Messages
		return n == each, fmt.Sprint(n)
	})
	// As when it is frozen: what comes now waits where the group is led.
	here, _ := f.nodes[lead].Topic("A", "T")
	here.Group().local.Load().queue.hold(here)
	for _, on := range f.names() {
		f.capture(on, topic, each/3, 2*each/3)
	}
	f.wait("messages wait where the group is led", func() (bool, string) {
		l := here.limbo.Load()
		if l == nil {
			return false, "none do"
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		n := 0
		for _, p := range append(append([]*parcel{}, l.own...), l.others...) {
			n += len(l.s.cl.open(p.data))
		}
		return n == each, fmt.Sprint(n)
	})
	// Another node hears of the switch early; the rest when it really happens.
	early := f.names()[0]
	if early == lead {
		early = f.names()[1]
	}
	e := f.nodes[early].State
	at, _ := e.Topic("A", "T")
	e.mu.Lock()
	e.switchedLocked(at, &catalogue.Topic{ID: at.ID(), Group: to.ID(), Config: *at.Config(), Moves: at.moves.Load() + 1})
	e.mu.Unlock()
	for _, on := range f.names() {
		f.capture(on, topic, 2*each/3, 2*each/3+each/6)
	}
	f.wait("what the node had forwarded is back", func() (bool, string) {
		l := here.limbo.Load()
		if l == nil {
			return false, "nothing waits where the group is led"
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, p := range l.others {
			if p.from.node == early {
				return false, fmt.Sprintf("%d bytes wait where the group is led", len(p.data))
			}
		}
		return true, ""
	})
	f.wait("the move begins", func() (bool, string) {
		on := f.nodes[f.names()[0]]
		at, _ := on.Topic("A", "T")
		err := on.MoveTopic(timed(t), at, to.ID())
		return err == nil, fmt.Sprint(err)
	})
	for _, on := range f.names() {
		f.capture(on, topic, 2*each/3+each/6, each)
	}
	began := time.Now()
	f.inOrder("T", each, f.names()...)
	t.Logf("all stored %s after the move was asked for", time.Since(began))
}
