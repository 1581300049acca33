package jetstream

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/subject"
)

// backedUp is a consumer in a backup, in nats-server's words.
type backedUp struct {
	Config *topics.ConsumerConfig `json:"config"`
	State  *backedState           `json:"state"`
}

type backedState struct {
	Delivered   backedPosition           `json:"delivered"`
	AckFloor    backedPosition           `json:"ack_floor"`
	Pending     map[uint64]backedPending `json:"pending,omitempty"`     // by stream sequence
	Redelivered map[uint64]uint64        `json:"redelivered,omitempty"` // deliveries beyond the first
}

type backedPosition struct {
	Consumer uint64 `json:"consumer_seq"`
	Stream   uint64 `json:"stream_seq"`
}

// backedPending has no names of its own in nats-server either.
type backedPending struct {
	Sequence  uint64
	Timestamp int64
}

func consumerBackup(c *consumer.Consumer, last topics.Sequence) *backedUp {
	cfg := c.Config()
	cfg.Name = c.Name()
	if until := c.PausedUntil(); until > 0 {
		at := time.Unix(0, int64(until)).UTC()
		cfg.PauseUntil = &at
	}
	s := c.Snapshot(last)
	out := &backedState{
		Delivered: backedPosition{s.Delivered.Consumer, uint64(s.Delivered.Stream)},
		AckFloor:  backedPosition{s.Floor.Consumer, uint64(s.Floor.Stream)},
	}
	for _, p := range s.Pending {
		if out.Pending == nil {
			out.Pending = map[uint64]backedPending{}
		}
		out.Pending[uint64(p.Sequence)] = backedPending{p.Consumer, int64(p.At)}
		if p.Attempts > 1 {
			if out.Redelivered == nil {
				out.Redelivered = map[uint64]uint64{}
			}
			out.Redelivered[uint64(p.Sequence)] = uint64(p.Attempts) - 1
		}
	}
	return &backedUp{&cfg, out}
}

// restoredConsumer makes a consumer of an entry of a backup.
func restoredConsumer(name string, body []byte, now topics.Nanos) (*consumer.Consumer, error) {
	var b backedUp
	if err := json.Unmarshal(body, &b); err != nil {
		return nil, fmt.Errorf("consumer %q: %w", name, err)
	}
	if b.Config == nil || b.State == nil {
		return nil, fmt.Errorf("consumer %q lacks its config or state", name)
	}
	if b.Config.Durable != "" {
		b.Config.Durable = name
	}
	b.Config.Name = name
	if b.Config.IsPush() && !subject.ValidLiteral(b.Config.DeliverSubject) {
		return nil, fmt.Errorf("consumer %q delivers to %q", name, b.Config.DeliverSubject)
	}
	for _, f := range b.Config.Filters() {
		if !subject.Valid(f) {
			return nil, fmt.Errorf("consumer %q filters by %q", name, f)
		}
	}
	s := consumer.Snapshot{
		Delivered: consumer.Position{Consumer: b.State.Delivered.Consumer, Stream: topics.Sequence(b.State.Delivered.Stream)},
		Floor:     consumer.Position{Consumer: b.State.AckFloor.Consumer, Stream: topics.Sequence(b.State.AckFloor.Stream)},
	}
	for seq, p := range b.State.Pending {
		attempts := min(b.State.Redelivered[seq]+1, math.MaxInt32)
		s.Pending = append(s.Pending, consumer.PendingMessage{
			Sequence: topics.Sequence(seq), Consumer: p.Sequence,
			At: min(topics.Nanos(p.Timestamp), now), Attempts: uint32(attempts),
		})
	}
	slices.SortFunc(s.Pending, func(a, b consumer.PendingMessage) int {
		if a.Sequence < b.Sequence {
			return -1
		}
		return 1
	})
	return consumer.Restored(0, name, *b.Config, now, s)
}
