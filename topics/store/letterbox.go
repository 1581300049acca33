package store

import (
	"fmt"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// How far the dead letters of a consumer have come in a topic is an outbox's count
// (outbox.go). Two things more can be done with it, each harmless the second time and
// whenever it comes:
//
// A parcel is closed: if the topic doesn't have it, it is never going to. So its sender
// learns for good what became of it, and can go on to the next.
//
// A count is forgotten once its consumer is gone. What the consumer sent may be under way
// still; so the topic keeps the highest number that it has forgotten of any consumer, and
// takes no parcel up to it from one that it doesn't know. Numbers begin with the time, so
// this rarely is in the way of another consumer; where it is, it hears so and goes on with a
// higher number.

// keyForgotten is the key of the highest number forgotten, among the topic's sources.
const keyForgotten = outboxPrefix + "letters"

// forgottenAt is where the letters are of a consumer that the topic doesn't know.
func (t *Topic) forgottenAt() topics.Place {
	if s, ok := t.sources[keyForgotten]; ok {
		return topics.Place{Epoch: uint64(s.at), Seq: topics.LetterClosed}
	}
	return topics.Place{}
}

func (s *Store) letterTopic(id topics.TopicID) (*Topic, *topics.Fault) {
	t := s.find(id)
	switch {
	case t == nil && s.damaged[id] != nil:
		return nil, faultOffline
	case t == nil:
		return nil, faultNoTopic
	}
	return t, nil
}

// CloseLetters has a topic never take a parcel of dead letters that it doesn't have. The
// result says where the consumer's letters are then: at the parcel, stored or closed, or
// behind it. Its Fault is that of a topic that isn't here.
func (s *Store) CloseLetters(id topics.TopicID, producer uint64, partition uint32, number uint64) topics.GuardResult {
	t, f := s.letterTopic(id)
	if f != nil {
		return topics.GuardResult{Verdict: topics.GuardRefused, Fault: f}
	}
	at := t.outboxAt(producer, partition)
	if at.Epoch < number {
		at = topics.Place{Epoch: number, Seq: topics.LetterClosed}
		t.noteOutbox(&topics.Guard{Producer: producer, Partition: partition, Epoch: at.Epoch, Seq: at.Seq})
	}
	return topics.GuardResult{Verdict: topics.GuardDone, At: at}
}

// ForgetLetters drops the count of a consumer that is no more. The Fault is that of a topic
// that isn't here.
func (s *Store) ForgetLetters(id topics.TopicID, producer uint64, partition uint32) *topics.Fault {
	t, f := s.letterTopic(id)
	if f != nil {
		return f
	}
	key := outboxKey(producer, partition)
	count, ok := t.sources[key]
	if !ok || producer&topics.BurialProducer == 0 {
		return nil
	}
	delete(t.sources, key)
	if t.sources[keyForgotten].at < count.at {
		t.sources[keyForgotten] = sourced{at: count.at}
	}
	t.touch()
	return nil
}

// Letterbox is how far the dead letters of a consumer have come in a topic.
type Letterbox struct {
	Topic     topics.TopicID // where they are
	Producer  uint64
	Partition uint32
	From      topics.TopicID // whose the consumer is
	Consumer  topics.ConsumerID
}

// Letterboxes returns those of all topics that live here, in no order.
func (s *Store) Letterboxes() (all []Letterbox) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, t := range s.topics {
		if t.hidden() {
			continue
		}
		for key := range t.sources {
			rest, ok := strings.CutPrefix(key, outboxPrefix)
			if !ok {
				continue
			}
			b := Letterbox{Topic: id}
			if n, err := fmt.Sscanf(rest, "%x %x", &b.Producer, &b.Partition); n != 2 || err != nil {
				continue
			}
			if b.From, b.Consumer, ok = topics.LetterSender(b.Producer, b.Partition); ok {
				all = append(all, b)
			}
		}
	}
	return all
}
