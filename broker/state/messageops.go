package state

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
)

// What changes one topic's messages or consumers is one record of its group.
// All of these may return ErrUnknown (ctx ended, or the lead was lost), ErrBusy,
// ErrClosed, replication.ErrNotLeader, or a *topics.Fault.

// Purge removes messages and returns how many.
func (s *State) Purge(ctx context.Context, t *Topic, p store.Purge) (uint64, error) {
	b := appendTopic(nil, t.id)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.Sequence))
	b = binary.LittleEndian.AppendUint64(b, p.Keep)
	b = appendText(b, p.Subject)
	r, err := t.ask(ctx, topics.RecordPurge, b)
	if err != nil {
		return 0, fmt.Errorf("purge topic %s: %w", t.name, err)
	}
	did, ok := r.(purged)
	if !ok {
		return 0, errResult(topics.RecordPurge, r)
	}
	return did.removed, faultError(did.fault)
}

// DeleteMessage removes one message; false when there was none at seq.
func (s *State) DeleteMessage(ctx context.Context, t *Topic, seq topics.Sequence) (bool, error) {
	b := binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), uint64(seq))
	r, err := t.ask(ctx, topics.RecordMessageDelete, b)
	if err != nil {
		return false, fmt.Errorf("delete message %d of topic %s: %w", seq, t.name, err)
	}
	return wasRemoved(topics.RecordMessageDelete, r)
}

// DeleteMessages removes messages, those that are there, and waits until that has
// been applied. The first failure is returned; the others may have been removed.
func (s *State) DeleteMessages(ctx context.Context, t *Topic, seqs []topics.Sequence) error {
	results := make(chan error, len(seqs))
	for _, seq := range seqs {
		b := binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), uint64(seq))
		t.Group().Submit(topics.RecordMessageDelete, b, func(r any, err error) {
			if did, ok := r.(removed); err == nil && ok && did.fault != nil && did.fault.ErrCode != codeNoSequence {
				err = did.fault
			}
			results <- err
		})
	}
	var failed error
	for range seqs {
		select {
		case err := <-results:
			if failed == nil && err != nil {
				failed = fmt.Errorf("delete messages of topic %s: %w", t.name, err)
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	return failed
}

// codeNoSequence is the err_code of a message that is not there.
const codeNoSequence = 10043

// CreateConsumer makes a consumer. An equal config under the same name gives the
// consumer that is there. Faults: 10026 when the topic or the account has too
// many, 10148 when there is another one of that name, and the store's.
func (s *State) CreateConsumer(ctx context.Context, t *Topic, name string, cfg topics.ConsumerConfig) (topics.ConsumerID, error) {
	most := 0
	if l := s.limitsOf(t.account); l != nil && l.Consumers > 0 {
		if most = l.Consumers - s.consumersElsewhere(t.account, t.Group()); most <= 0 {
			return 0, faultMaxConsumers
		}
	}
	b := binary.LittleEndian.AppendUint32(appendTopic(nil, t.id), uint32(most))
	b = consumer.AppendConfig(appendText(b, name), &cfg)
	r, err := t.askAgain(ctx, topics.RecordConsumerCreate, b)
	if err != nil {
		return 0, fmt.Errorf("create consumer %s of topic %s: %w", name, t.name, err)
	}
	did, ok := r.(created)
	if !ok {
		return 0, errResult(topics.RecordConsumerCreate, r)
	}
	return did.id, faultError(did.fault)
}

// SkipTo uses up a topic's sequences up to last. What is not ahead changes nothing.
func (s *State) SkipTo(ctx context.Context, t *Topic, last topics.Sequence) error {
	b := binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), uint64(last))
	if _, err := t.askAgain(ctx, topics.RecordTopicSkip, b); err != nil {
		return fmt.Errorf("skip to %d in topic %s: %w", last, t.name, err)
	}
	return nil
}

// RestoreConsumer adds a consumer that has come as far as a backup says. Faults are
// CreateConsumer's.
func (s *State) RestoreConsumer(ctx context.Context, t *Topic, c *consumer.Consumer) error {
	b, err := c.AppendBinary(appendText(appendTopic(nil, t.id), c.Name()))
	if err != nil {
		return fmt.Errorf("restore consumer %s of topic %s: %w", c.Name(), t.name, err)
	}
	return s.changeConsumer(ctx, t, c.Name(), topics.RecordConsumerRestore, b)
}

// UpdateConsumer gives a consumer another config; fault 10014 when there is none.
func (s *State) UpdateConsumer(ctx context.Context, t *Topic, name string, cfg topics.ConsumerConfig) error {
	b := consumer.AppendConfig(appendText(appendTopic(nil, t.id), name), &cfg)
	return s.changeConsumer(ctx, t, name, topics.RecordConsumerUpdate, b)
}

// DeleteConsumer deletes a consumer; false when there was none.
func (s *State) DeleteConsumer(ctx context.Context, t *Topic, name string) (bool, error) {
	r, err := t.ask(ctx, topics.RecordConsumerDelete, appendText(appendTopic(nil, t.id), name))
	if err != nil {
		return false, fmt.Errorf("delete consumer %s of topic %s: %w", name, t.name, err)
	}
	return wasRemoved(topics.RecordConsumerDelete, r)
}

// PauseConsumer stops a consumer's deliveries until a time; the zero time
// resumes them.
func (s *State) PauseConsumer(ctx context.Context, t *Topic, name string, until time.Time) error {
	var ns uint64
	if !until.IsZero() {
		ns = uint64(topics.NanosOf(until))
	}
	b := binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), ns)
	return s.changeConsumer(ctx, t, name, topics.RecordConsumerPause, appendText(b, name))
}

// ResetConsumer moves a consumer so that seq is the next message it gets; 0
// moves it back to its acknowledgement floor. It returns where it moved to.
func (s *State) ResetConsumer(ctx context.Context, t *Topic, name string, seq topics.Sequence) (topics.Sequence, error) {
	b := binary.LittleEndian.AppendUint64(appendTopic(nil, t.id), uint64(seq))
	r, err := t.ask(ctx, topics.RecordConsumerReset, appendText(b, name))
	if err != nil {
		return 0, fmt.Errorf("reset consumer %s of topic %s: %w", name, t.name, err)
	}
	did, ok := r.(reset)
	if !ok {
		return 0, errResult(topics.RecordConsumerReset, r)
	}
	return did.to, faultError(did.fault)
}

func (s *State) changeConsumer(ctx context.Context, t *Topic, name string, kind topics.RecordKind, b []byte) error {
	r, err := t.askAgain(ctx, kind, b)
	if err != nil {
		return fmt.Errorf("change consumer %s of topic %s: %w", name, t.name, err)
	}
	f, ok := r.(*topics.Fault)
	if !ok {
		return errResult(kind, r)
	}
	return faultError(f)
}

func wasRemoved(kind topics.RecordKind, r any) (bool, error) {
	did, ok := r.(removed)
	if !ok {
		return false, errResult(kind, r)
	}
	return did.found, faultError(did.fault)
}

// faultError keeps a nil fault from becoming an error that isn't nil.
func faultError(f *topics.Fault) error {
	if f == nil {
		return nil
	}
	return f
}

// errResult is for a result that only a bug can give.
func errResult(kind topics.RecordKind, r any) error {
	return fmt.Errorf("record of kind %d was answered with %T", kind, r)
}
