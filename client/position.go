package client

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Position is a place in a topic to read from.
type Position struct {
	policy   jetstream.DeliverPolicy
	sequence uint64
	time     time.Time
}

// First is the oldest message the topic still has.
func First() Position { return Position{policy: jetstream.DeliverAllPolicy} }

// Last is the newest message that matches, and what follows.
func Last() Position { return Position{policy: jetstream.DeliverLastPolicy} }

// LastPerSubject is the newest message of each subject, and what follows.
func LastPerSubject() Position { return Position{policy: jetstream.DeliverLastPerSubjectPolicy} }

// Next is the first message stored from now on.
func Next() Position { return Position{policy: jetstream.DeliverNewPolicy} }

// At is the first message with this sequence or a higher one.
func At(sequence uint64) Position {
	if sequence == 0 {
		return First()
	}
	return Position{policy: jetstream.DeliverByStartSequencePolicy, sequence: sequence}
}

// Since is the first message stored at t or later, by the broker's clock.
func Since(t time.Time) Position {
	return Position{policy: jetstream.DeliverByStartTimePolicy, time: t.UTC()}
}

// String describes the position for people.
func (p Position) String() string {
	switch p.policy {
	case jetstream.DeliverLastPolicy:
		return "the last message"
	case jetstream.DeliverLastPerSubjectPolicy:
		return "the last message of each subject"
	case jetstream.DeliverNewPolicy:
		return "new messages"
	case jetstream.DeliverByStartSequencePolicy:
		return fmt.Sprintf("sequence %d", p.sequence)
	case jetstream.DeliverByStartTimePolicy:
		return p.time.Format(time.RFC3339Nano)
	}
	return "the first message"
}

func (p Position) startTime() *time.Time {
	if p.policy != jetstream.DeliverByStartTimePolicy {
		return nil
	}
	return &p.time
}

// After tells whether the position certainly lies behind the message with this
// sequence and time, so that reading from it will not give that message.
func (p Position) After(sequence uint64, at time.Time) bool {
	switch p.policy {
	case jetstream.DeliverNewPolicy:
		return true
	case jetstream.DeliverByStartSequencePolicy:
		return p.sequence > sequence
	case jetstream.DeliverByStartTimePolicy:
		return p.time.After(at)
	}
	return false
}

// Apply makes cfg start at the position.
func (p Position) Apply(cfg ConsumerConfig) ConsumerConfig {
	cfg.DeliverPolicy, cfg.OptStartSeq, cfg.OptStartTime = p.policy, p.sequence, p.startTime()
	return cfg
}
