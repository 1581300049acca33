package state

import (
	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/topics"
)

// away tells whether messages of a topic must not be proposed to a group now. settled are
// those that have been in the topic's limbo, or with a forwarder since.
func (g *Group) away(t *Topic, settled bool) bool {
	if t.held.Load() || t.Group() != g {
		return true
	}
	l := t.limbo.Load()
	return l != nil && (!settled || l.precedes())
}

// captureSettled captures what has been in a limbo; what has to stay there is appended to
// rest.
func (q *queue) captureSettled(messages []front.Captured, from *sender, rest *parcel) {
	q.mu.Lock()
	taken := q.captureFrom(messages, origin{from: from, rest: rest})
	tells := q.tells
	q.tells = nil
	q.mu.Unlock()
	if len(tells) > 0 {
		q.teller.send(tells)
	}
	if !taken {
		for i := range messages {
			rest.append(&messages[i])
		}
	}
}

// strayed gives the messages whose topics have moved away from the group to those
// where they are, and returns the rest. A group that no topic has left costs nothing.
func (g *Group) strayed(batch []front.Captured) []front.Captured {
	if !g.left.Load() {
		return batch
	}
	var rest []front.Captured
	var last topics.TopicID
	at := g
	for i := 0; i < len(batch); {
		if batch[i].Topic != last || i == 0 {
			last, at = batch[i].Topic, g
			if t, ok := g.s.TopicByID(last); ok {
				at = t.Group()
			}
		}
		end := i + 1
		for end < len(batch) && batch[end].Topic == last {
			end++
		}
		if at == g {
			rest = append(rest, batch[i:end]...)
		} else {
			at.Capture(batch[i:end])
		}
		i = end
	}
	return rest
}

// hold keeps what is captured for a topic from now on from being proposed, and gives
// its batches up: whoever leads it next doesn't know them.
func (q *queue) hold(t *Topic) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.held.Store(true)
	q.staging.dropTopic(t.id)
	q.fasts.dropTopic(t.id)
}

func (s *staging) dropTopic(id topics.TopicID) {
	for k, b := range s.open {
		if k.topic == id {
			s.remove(k, b)
		}
	}
}

func (s *fastBatches) dropTopic(id topics.TopicID) {
	for _, f := range s.open {
		if f.key.topic == id {
			s.remove(f)
		}
	}
}
