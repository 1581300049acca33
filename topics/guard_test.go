package topics

import "testing"

// What a producer of the past sends is refused, whatever its number; what was sent twice is
// taken once. An outbox's higher epoch needs no declaration.
func TestOnlyTheNextIsTaken(t *testing.T) {
	at := Place{Epoch: 3, Seq: 7}
	for _, c := range []struct {
		at          Place
		epoch, seq  uint64
		own, outbox Verdict // of an operator's step, and of its outbox's parcel
	}{
		{at, 3, 8, GuardNext, GuardNext},
		{at, 3, 7, GuardDone, GuardDone},
		{at, 3, 1, GuardDone, GuardDone},
		{at, 3, 9, GuardRefused, GuardRefused}, // something is missing
		{at, 3, 0, GuardRefused, GuardRefused},
		{at, 2, 8, GuardRefused, GuardRefused}, // a zombie's
		{at, 2, 7, GuardRefused, GuardRefused},
		{at, 2, 1, GuardRefused, GuardRefused},
		{at, 0, 1, GuardRefused, GuardRefused},
		{at, 4, 1, GuardRefused, GuardNext}, // an epoch that nobody has declared
		{at, 4, 8, GuardRefused, GuardRefused},
		{Place{}, 1, 1, GuardRefused, GuardNext}, // nobody knows the producer
		{Place{}, 1, 2, GuardRefused, GuardRefused},
	} {
		step := &Guard{Producer: 5, Epoch: c.epoch, Seq: c.seq}
		parcel := &Guard{Producer: 5 | OutboxBit, Epoch: c.epoch, Seq: c.seq}
		if own, outbox := c.at.Judge(step), c.at.Judge(parcel); own != c.own || outbox != c.outbox {
			t.Errorf("at %v: %d of epoch %d is %d, of an outbox %d; want %d and %d", c.at, c.seq, c.epoch, own, outbox, c.own, c.outbox)
		}
	}
}
