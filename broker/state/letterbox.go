package state

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/store"
)

// What a letterbox record does.
const (
	letterboxClose  = iota + 1 // a parcel that the topic doesn't have is never taken
	letterboxForget            // the count of a consumer that is gone is dropped
)

func appendLetterbox(dst []byte, id topics.TopicID, what byte, producer uint64, partition uint32, number uint64) []byte {
	dst = append(appendTopic(dst, id), what)
	dst = binary.LittleEndian.AppendUint64(dst, producer)
	dst = binary.LittleEndian.AppendUint32(dst, partition)
	return binary.LittleEndian.AppendUint64(dst, number)
}

// CloseLetters has a topic of the group, led anywhere, never take a parcel of dead letters
// that it doesn't have. The result says where the letters of that producer are then; its
// Fault is that of a topic that isn't in the group. It may be asked again.
func (g *Group) CloseLetters(ctx context.Context, id topics.TopicID, producer uint64, partition uint32, number uint64) (topics.GuardResult, error) {
	return g.letterbox(ctx, appendLetterbox(nil, id, letterboxClose, producer, partition, number))
}

// ForgetLetters drops what a topic of the group, led anywhere, knows of the letters of a
// producer that is no more. What of it comes late is refused. It may be asked again.
func (g *Group) ForgetLetters(ctx context.Context, b *store.Letterbox) error {
	r, err := g.letterbox(ctx, appendLetterbox(nil, b.Topic, letterboxForget, b.Producer, b.Partition, 0))
	if err == nil && r.Fault != nil {
		return r.Fault
	}
	return err
}

func (g *Group) letterbox(ctx context.Context, raw []byte) (topics.GuardResult, error) {
	result, err := g.askAgain(ctx, topics.RecordLetterbox, raw)
	if err != nil {
		return topics.GuardResult{}, err
	}
	got, ok := result.(topics.GuardResult)
	if !ok {
		return got, errResult(topics.RecordLetterbox, result)
	}
	return got, nil
}

// HasConsumer asks the group, led anywhere, for a consumer of a topic that lives there. The
// answer is that of the log: a consumer that isn't there then never is again. The error
// is a fault where the topic isn't there.
func (g *Group) HasConsumer(ctx context.Context, id topics.TopicID, c topics.ConsumerID) (bool, error) {
	raw := new(consumer.Consumer).AppendLetters(topics.AppendConsumerRecord(nil, id, c), 0, consumer.LetterOps{})
	result, err := g.askAgain(ctx, topics.RecordLetters, raw)
	f, ok := result.(*topics.Fault)
	switch {
	case err != nil:
		return false, err
	case ok && f.ErrCode == faultConsumerNotFound.ErrCode:
		return false, nil
	case ok:
		return false, f
	}
	return true, nil
}

// applyLetters says what becomes of the dead letters of a consumer.
func (m *dataMachine) applyLetters(raw []byte) (any, error) {
	id, c, rest, err := topics.ParseConsumerRecord(raw)
	if err != nil {
		return nil, err
	}
	switch err := m.data.Letters(id, c, rest); {
	case errors.Is(err, store.ErrUnknownTopic):
		return faultTopicNotFound, nil
	case errors.Is(err, store.ErrUnknownConsumer):
		return faultConsumerNotFound, nil
	case err != nil:
		return nil, err
	}
	return nil, nil
}

func (m *dataMachine) applyLetterbox(b *body) (any, error) {
	id, what, producer, partition, number := b.topic(), b.u8(), b.u64(), b.u32(), b.u64()
	if err := b.err(topics.RecordLetterbox); err != nil {
		return nil, err
	}
	switch what {
	case letterboxClose:
		return m.data.CloseLetters(id, producer, partition, number), nil
	case letterboxForget:
		f := m.data.ForgetLetters(id, producer, partition)
		return topics.GuardResult{Verdict: topics.GuardDone, Fault: f}, nil
	}
	b.bad = true
	return nil, b.err(topics.RecordLetterbox)
}
