package topics

import (
	"encoding/binary"
	"fmt"
)

// The records of a data group, beside RecordPublish. The numbers are part of
// the log's format: never renumber, never reuse.
//
// A body starts with the topic it is about (u64, little-endian); those about
// a consumer that exists go on with the consumer (u64). What follows belongs to
// the kind.
const (
	RecordTopicCreate     = RecordState + iota // broker/state: account, time of creation, config
	RecordTopicUpdate                          // broker/state: config
	RecordTopicDelete                          // nothing more
	RecordPurge                                // broker/state: sequence, keep, subject
	RecordMessageDelete                        // broker/state: sequence
	RecordExpire                               // nothing more: the entry's time decides
	RecordConsumerCreate                       // broker/state: name, config
	RecordConsumerUpdate                       // broker/state: name, config
	RecordConsumerDelete                       // broker/state: name
	RecordDelivered                            // consumer, body of consumer.AppendDelivered
	RecordAcked                                // consumer, body of consumer.AppendAcks
	RecordConsumerReset                        // broker/state: name, sequence
	RecordStorageLimits                        // no topic; broker/state: what accounts may hold, for the rest of the entry
	RecordConsumerPause                        // broker/state: name, until
	RecordTopicSkip                            // broker/state: the last sequence to use up
	RecordAtomic                               // no topic; broker/state: how many of the next records, all publishes, stand or fall together
	RecordLink                                 // no topic; broker/state: a chain of the entry; the next record, a publish, fails if one of its chain has
	RecordConsumerRestore                      // broker/state: name, what consumer.AppendBinary wrote
	RecordMarker                               // no topic; flags u8: nothing changes, and every replica says what it holds
	RecordProducer                             // no topic; broker/state: a producer of guarded entries, and its epoch
	RecordGuard                                // no topic; AppendGuard: the next records, publishes, steps and acknowledgements, stand or fall together, once
	RecordStep                                 // no topic; behind a guard: the head of an operator's step, which only operators read
	RecordTopicMove                            // broker/state: number, pass, step, what the step of topics/store has
	RecordLetters                              // consumer, body of consumer.AppendLetters
	RecordLetterbox                            // broker/state: what is done, producer, partition, number of a parcel
)

// ConsumerRecordHeader is how many bytes AppendConsumerRecord adds.
const ConsumerRecordHeader = 16

// AppendConsumerRecord starts the body of a record about a consumer that
// exists (RecordDelivered, RecordAcked); the kind's own body follows it.
func AppendConsumerRecord(dst []byte, t TopicID, c ConsumerID) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t))
	return binary.LittleEndian.AppendUint64(dst, uint64(c))
}

// ParseConsumerRecord reads what AppendConsumerRecord wrote; rest aliases body.
func ParseConsumerRecord(body []byte) (t TopicID, c ConsumerID, rest []byte, err error) {
	if len(body) < ConsumerRecordHeader {
		return 0, 0, nil, fmt.Errorf("%w: consumer record of %d bytes", ErrBadEntry, len(body))
	}
	t = TopicID(binary.LittleEndian.Uint64(body))
	c = ConsumerID(binary.LittleEndian.Uint64(body[8:]))
	return t, c, body[ConsumerRecordHeader:], nil
}
