package topics

// A consumer whose messages go elsewhere when it gives them up is a producer of its own,
// an outbox. What it sends are parcels of dead letters, one after the other: the number of a
// parcel is the epoch of its guard, and the guard's Seq is 1. A topic that has a parcel is at
// its number and LetterStored; one that is never going to take it is there, too, but at
// LetterClosed (RecordLetterbox). Parcels with lower numbers, whatever became of them, are
// refused, and so is a parcel that comes late.
const (
	LetterStored = 1
	LetterClosed = 2
)

// The bits of a LetterProducer.
const (
	letterTopicBits    = 40
	letterConsumerBits = 22 + 32
	letterBits         = OutboxBit | BurialProducer
)

// LetterProducer returns the producer, and the partition of it, by which a consumer sends
// dead letters; false for a consumer that has no such number. There are 2^40 topics and
// 2^54 consumers of each that do.
func LetterProducer(t TopicID, c ConsumerID) (producer uint64, partition uint32, ok bool) {
	if t>>letterTopicBits != 0 || c>>letterConsumerBits != 0 {
		return 0, 0, false
	}
	return letterBits | uint64(c)>>32<<letterTopicBits | uint64(t), uint32(c), true
}

// LetterSender is the way back from LetterProducer; false for other producers.
func LetterSender(producer uint64, partition uint32) (TopicID, ConsumerID, bool) {
	if producer&letterBits != letterBits {
		return 0, 0, false
	}
	rest := producer &^ letterBits
	return TopicID(rest & (1<<letterTopicBits - 1)), ConsumerID(rest>>letterTopicBits<<32 | uint64(partition)), true
}
