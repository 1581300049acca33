package operate

import (
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// teller gives live subscribers what topics have got from an operator, as what clients
// publish to a topic reaches them too. It is told after the messages are committed, by
// the node that proposed them, at most once: a node that ends in between tells nobody, as
// with everything live. One goroutine at a time.
type teller struct {
	account *front.Account
	p       *front.Publisher
}

// tell gives messages to those who listen. An account of nil has no listeners.
func (t *teller) tell(a *front.Account, stored []topics.Publish) {
	if a == nil || len(stored) == 0 {
		return
	}
	if t.account != a { // made anew by a reload
		t.account, t.p = a, a.NewPublisher()
	}
	for i := range stored {
		t.p.Tell(stored[i].Subject, stored[i].Header, stored[i].Payload)
	}
	t.p.Flush()
}
