package engine

import (
	"encoding/binary"
	"fmt"

	"github.com/heraldmq/herald/operators/state"
	"github.com/heraldmq/herald/topics"
)

// Resend calls f with the keys and values of an outbox that holds what waits in live (nil:
// nothing does), and behind it, under new numbers, what waits in saved for the topics that
// to knows by name. What is for other topics is left out.
func Resend(live, saved state.Reader, to map[string]topics.TopicID, f func(key, v []byte) bool) error {
	next, names, order := map[topics.TopicID]uint64{}, map[topics.TopicID]string{}, []topics.TopicID{}
	lane := func(l Lane) {
		if _, ok := next[l.Topic]; !ok {
			next[l.Topic], names[l.Topic], order = l.Next, l.Name, append(order, l.Topic)
		}
	}
	more := true
	if live != nil {
		lanes, err := Lanes(live)
		if err != nil {
			return err
		}
		for _, l := range lanes {
			lane(l)
			if err := Parcels(live, l.Topic, 0, func(n uint64, p []byte) bool { more = f(parcelKey(l.Topic, n), p); return more }); err != nil || !more {
				return err
			}
		}
	}
	lanes, err := Lanes(saved)
	if err != nil {
		return fmt.Errorf("send what waits in a savepoint: %w", err)
	}
	for _, l := range lanes {
		id, ok := to[l.Name]
		if !ok {
			continue
		}
		lane(Lane{id, l.Name, 1})
		err := Parcels(saved, l.Topic, 0, func(_ uint64, p []byte) bool {
			more = f(parcelKey(id, next[id]), p)
			next[id]++
			return more
		})
		if err != nil || !more {
			return err
		}
	}
	for _, id := range order {
		if !f(laneKey(id), append(binary.AppendUvarint(nil, next[id]), names[id]...)) {
			return nil
		}
	}
	return nil
}

// Waiting returns how many parcels wait in an outbox.
func Waiting(r state.Reader) (n int, err error) {
	err = r.Scan([]byte{spaceOutbox, 'r'}, []byte{spaceOutbox, 's'}, func(_, _ []byte) bool { n++; return true })
	return n, err
}

// IsParcel tells whether a key of an instance's store is that of something that waits to be
// sent.
func IsParcel(key []byte) bool { return IsOutbox(key) && len(key) == 18 && key[1] == 'r' }
