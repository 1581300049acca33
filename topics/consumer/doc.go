// Package consumer is a reader's place in a topic: what was delivered, what was
// acknowledged, what is due to be delivered again.
//
// A Consumer is a pure state machine. It reads no clock, starts no goroutine and
// draws no random number, and it exists twice:
//
//   - the replicated copy lives in the store of every node and changes only by
//     applied records (ApplyDelivered, ApplyAcks, Trim, Reset, Update);
//   - the live copy lives in broker/delivery on the leader. It is a Clone that was
//     told to Lead; it changes at once (Deliver, Ack, Nak, …) and keeps a journal
//     of what it did, which Records hands out to be proposed.
//
// Both run through the same few transitions (transition.go), so applying the
// records of a live copy gives its state again. What only the leader needs (the
// cursor, the redelivery schedule, the count of pending messages) is built by
// Lead and never replicated.
//
// The files: window.go holds the messages that wait for an acknowledgement,
// schedule.go when they are due, tally.go the exact num_pending, record.go the
// layout of the records, marshal.go that of the flushed state.
//
// No method may be called at once with another on the same Consumer.
package consumer
