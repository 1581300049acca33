package store

import (
	"fmt"
	"strings"

	"github.com/heraldmq/herald/topics"
)

// How far an outbox has come is the topic's that it sends to, kept like how far the topic
// has come in copying a source, under a key that no source has; so it moves with the topic.
// The group lists the outbox among its producers, which is how it is found when it goes; but
// for that of a consumer with dead letters, which is found here (letterbox.go).

const outboxPrefix = "\x00outbox "

func outboxKey(producer uint64, partition uint32) string {
	return fmt.Sprintf("%s%016x %08x", outboxPrefix, producer, partition)
}

// outboxAt returns how far an outbox has come in the topic.
func (t *Topic) outboxAt(producer uint64, partition uint32) topics.Place {
	if len(t.sources) == 0 {
		return topics.Place{}
	}
	s, ok := t.sources[outboxKey(producer, partition)]
	if !ok && producer&topics.BurialProducer != 0 {
		return t.forgottenAt()
	}
	return topics.Place{Epoch: uint64(s.at), Seq: uint64(s.seq)}
}

func (t *Topic) noteOutbox(g *topics.Guard) {
	if t.sources == nil {
		t.sources = make(map[string]sourced)
	}
	t.sources[outboxKey(g.Producer, g.Partition)] = sourced{topics.Sequence(g.Seq), topics.Nanos(g.Epoch)}
	t.touch()
	if g.Producer&topics.BurialProducer == 0 {
		t.s.listOutbox(g.Producer)
	}
}

func (s *Store) listOutbox(id uint64) {
	if s.producers[id] == nil {
		s.producers[id] = &producer{epoch: 1, seqs: map[uint32]uint64{}}
		s.produced(id)
	}
}

// listOutboxes lists those that have sent to a topic that has arrived.
func (t *Topic) listOutboxes() {
	for key := range t.sources {
		var producer uint64
		if rest, ok := strings.CutPrefix(key, outboxPrefix); ok {
			if _, err := fmt.Sscanf(rest, "%x", &producer); err == nil && producer&topics.BurialProducer == 0 {
				t.s.listOutbox(producer)
			}
		}
	}
}

// forgetOutbox drops what is known of an outbox that is no more.
func (s *Store) forgetOutbox(producer uint64) {
	prefix := fmt.Sprintf("%s%016x ", outboxPrefix, producer)
	for _, t := range s.topics {
		for key := range t.sources {
			if strings.HasPrefix(key, prefix) {
				delete(t.sources, key)
				t.touch()
			}
		}
	}
}

// OutboxPlace returns how far a producer's outbox has come in the topic.
func (t *Topic) OutboxPlace(producer uint64, partition uint32) topics.Place {
	t.s.mu.RLock()
	defer t.s.mu.RUnlock()
	return t.outboxAt(producer, partition)
}

// judgeOutbox is Judge for the records of an outbox, all of one topic.
func (s *Store) judgeOutbox(g *topics.Guard, batch []Batched) topics.GuardResult {
	refused := func(f *topics.Fault) topics.GuardResult {
		return topics.GuardResult{Verdict: topics.GuardRefused, Fault: f}
	}
	if len(batch) == 0 {
		return refused(faultOutbox)
	}
	id := batch[0].Publish.Topic
	for i := range batch {
		if batch[i].Publish.Topic != id {
			return refused(faultOutbox)
		}
	}
	t := s.find(id)
	switch {
	case t == nil && s.damaged[id] != nil:
		return refused(faultOffline)
	case t == nil:
		return refused(faultNoTopic)
	}
	at := t.outboxAt(g.Producer, g.Partition)
	return topics.GuardResult{Verdict: at.Judge(g), At: at}
}

var faultOutbox = topics.NewFault(400, 10176, "what an outbox sends in one piece is for one topic")
