package consumer

import (
	"time"

	"github.com/heraldmq/herald/topics"
)

// Consumer is one consumer of one topic. See the package comment.
type Consumer struct{}

// New returns a consumer that has delivered nothing. Where it starts is decided
// here, from the topic as it is now and the time of the entry (created).
func New(id topics.ConsumerID, name string, cfg topics.ConsumerConfig, created topics.Nanos, log Log) *Consumer {
	panic("not yet")
}

// Unmarshal reads what AppendBinary wrote. The Consumer keeps nothing of data.
func Unmarshal(data []byte) (*Consumer, error) { panic("not yet") }

// AppendBinary appends the replicated state, with a version and without a
// checksum: the caller's container has one.
func (c *Consumer) AppendBinary(dst []byte) ([]byte, error) { panic("not yet") }

// Clone returns an independent copy of the replicated state.
func (c *Consumer) Clone() *Consumer { panic("not yet") }

// ID returns the consumer's identifier within its topic.
func (c *Consumer) ID() topics.ConsumerID { panic("not yet") }

// Name returns the consumer's name.
func (c *Consumer) Name() string { panic("not yet") }

// Created returns the time of the entry that created the consumer.
func (c *Consumer) Created() topics.Nanos { panic("not yet") }

// Config returns the consumer's config. It is decoded at each call.
func (c *Consumer) Config() topics.ConsumerConfig { panic("not yet") }

// Filter returns what the consumer wants of the topic; nil is everything.
func (c *Consumer) Filter() *topics.Filter { panic("not yet") }

// Update gives the consumer another config. What can't be changed must be equal.
func (c *Consumer) Update(cfg topics.ConsumerConfig) { panic("not yet") }

// Pause sets until when nothing is delivered; 0 goes on at once.
func (c *Consumer) Pause(until topics.Nanos) { panic("not yet") }

// Reset goes back (or forward) to seq as the next message, and forgets what is
// pending; 0 goes back to the ack floor. It returns the sequence gone to.
// Records of a live copy made before the reset have no effect after it.
func (c *Consumer) Reset(seq topics.Sequence) topics.Sequence { panic("not yet") }

// Trim tells that everything before first was purged.
func (c *Consumer) Trim(first topics.Sequence) { panic("not yet") }

// ApplyDelivered applies the body of a delivered record.
func (c *Consumer) ApplyDelivered(body []byte) error { panic("not yet") }

// ApplyAcks applies the body of an acked record; acked is called for each
// sequence that was pending (or, for ack policy "none", delivered) and is now
// acknowledged or terminated. acked may be nil.
func (c *Consumer) ApplyAcks(body []byte, acked func(seq topics.Sequence)) error { panic("not yet") }

// Needs tells whether the message is still to be delivered or acknowledged:
// interest retention keeps it as long as a consumer whose filter lets it
// through needs it.
func (c *Consumer) Needs(seq topics.Sequence) bool { panic("not yet") }

// Delivered returns the last delivery.
func (c *Consumer) Delivered() Position { panic("not yet") }

// AckFloor returns the place up to which everything is acknowledged.
func (c *Consumer) AckFloor() Position { panic("not yet") }

// NumAckPending returns how many messages wait for their acknowledgement.
func (c *Consumer) NumAckPending() int { panic("not yet") }

// NumRedelivered returns how many of those were delivered more than once.
func (c *Consumer) NumRedelivered() int { panic("not yet") }

// PausedUntil returns until when nothing is delivered; 0 when not paused.
func (c *Consumer) PausedUntil() topics.Nanos { panic("not yet") }

// AckWait returns the time a delivery has before it is repeated.
func (c *Consumer) AckWait(attempt uint32) time.Duration { panic("not yet") }
