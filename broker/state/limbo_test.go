package state

import (
	"testing"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// meanwhile does something while the first answer is given, and notes who was answered.
type meanwhile struct {
	do       func()
	answered chan string
}

func (m *meanwhile) Deliver(to, _, _ string, _, _ []byte) bool {
	if to == "first" {
		m.do()
	}
	m.answered <- to
	return true
}

func (m *meanwhile) Answer(_, reply string, header, payload []byte) {
	m.Deliver(reply, reply, "", header, payload)
}

func (m *meanwhile) Flush() {}

// TestWhatComesWhileALimboGivesIsAnswered has a message come for a topic just while what
// waited before it is given away: it goes behind that, and must not end with it.
func TestWhatComesWhileALimboGivesIsAnswered(t *testing.T) {
	m := &meanwhile{answered: make(chan string, 10)}
	f := startFleet(t, 1, func(o *Options) { o.Replier = func(*front.Account) Replier { return m } })
	topic := f.create("a", replicated(1, "T", "t.>"))
	other := &sender{node: "b", channel: peer.ChannelGroup0 + peer.Channel(topic.Group().ID()), term: 1 << 40}
	for name, way := range map[string]struct {
		from *sender
		via  *parcel
	}{
		"forwarded by another node":   {from: other},
		"captured here":               {},
		"was with the forwarder":      {via: &parcel{}},
		"was sent or proposed before": {via: &parcel{again: true, number: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &limbo{s: f.nodes["a"].State, t: topic, wake: make(chan struct{}, 1)}
			l.s.limbos.add(l)
			add := func(reply string) {
				if !l.add(&front.Captured{Topic: topic.ID(), Subject: []byte("t.x"), Reply: []byte(reply)}, way.from, way.via) {
					t.Errorf("%s finds no limbo", reply)
				}
			}
			m.do = func() { add("second") }
			add("first")
			for _, p := range append(append(append(append([]*parcel{}, l.others...), l.back...), l.front...), l.own...) {
				p.since = time.Now().Add(-time.Hour) // it has waited too long, and is refused
			}
			for _, want := range []string{"first", "second"} {
				for got := ""; got == ""; {
					ended := l.look()
					select {
					case got = <-m.answered:
					case <-time.After(10 * time.Second):
						t.Fatalf("%s is never answered; the limbo has ended: %v", want, ended)
					}
					if got != want {
						t.Fatalf("%s is answered, not %s", got, want)
					}
				}
			}
		})
	}
}
