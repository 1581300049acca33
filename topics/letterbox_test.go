package topics

import "testing"

func TestLetterProducersAreOneForEachConsumer(t *testing.T) {
	seen := map[[2]uint64]bool{}
	for _, topic := range []TopicID{1, 2, 1<<40 - 1} {
		for _, c := range []ConsumerID{1, 1<<32 - 1, 1 << 32, 1<<32 + 1, 1<<54 - 1} {
			producer, partition, ok := LetterProducer(topic, c)
			k := [2]uint64{producer, uint64(partition)}
			if g := (Guard{Producer: producer}); !ok || seen[k] || !g.Outbox() || producer&BurialProducer == 0 {
				t.Errorf("consumer %d of topic %d is producer %x, %x, %t", c, topic, producer, partition, ok)
			}
			seen[k] = true
			if gotTopic, gotConsumer, ok := LetterSender(producer, partition); !ok || gotTopic != topic || gotConsumer != c {
				t.Errorf("producer %x, %x is consumer %d of topic %d, %t", producer, partition, gotConsumer, gotTopic, ok)
			}
		}
	}
	if _, _, ok := LetterProducer(1<<40, 1); ok {
		t.Error("a topic has no number of its own, and has one")
	}
	if _, _, ok := LetterProducer(1, 1<<54); ok {
		t.Error("a consumer has no number of its own, and has one")
	}
	for _, id := range []uint64{7, 7 | OutboxBit, 7 | BurialProducer} {
		if _, _, ok := LetterSender(id, 0); ok {
			t.Errorf("producer %x sends letters", id)
		}
	}
}
