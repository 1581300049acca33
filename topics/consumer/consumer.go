package consumer

import (
	"errors"

	"github.com/heraldmq/herald/topics"
)

// ErrBadRecord is returned for a record or a flushed state that can't be read.
// It was written by a newer version or is damaged; the process must not go on.
var ErrBadRecord = errors.New("consumer record is not readable")

// Position is a place in a consumer's deliveries and the topic sequence that
// belongs to it.
type Position struct {
	Consumer uint64          // deliveries so far, redeliveries included
	Stream   topics.Sequence // topic sequence
	Time     topics.Nanos    // when it last moved; 0 if never
}

// Delivery is one message picked for delivery.
type Delivery struct {
	Sequence topics.Sequence
	Consumer uint64 // its number among this consumer's deliveries
	Attempt  uint32 // 1 for the first delivery
}

// Record is a change of a live copy, to be applied to the replicated ones.
// Records must be applied in the order in which they were handed out.
type Record struct {
	Kind topics.RecordKind // RecordDelivered or RecordAcked
	Body []byte
}
