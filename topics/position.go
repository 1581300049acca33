package topics

import (
	"math"
	"time"
)

// Sequence is a position in a topic: dense, from 1, never reused. 0 means "no
// message".
type Sequence uint64

// Index is a position in a group's Raft log. 0 means "before the first entry".
type Index uint64

// TopicID names a topic for the life of the cluster. The catalogue assigns it;
// it is never reused, so a record about a deleted topic can't hit its successor.
type TopicID uint64

// ConsumerID names a consumer within its topic. The topic assigns it when the
// creating entry is applied; never reused.
type ConsumerID uint64

// GroupID names a Raft group. Group 0 holds the catalogue, the others hold
// topics with their consumers.
type GroupID uint32

// CatalogueGroup is the group that decides what exists.
const CatalogueGroup GroupID = 0

// Nanos is a point in time in nanoseconds since 1970 (UTC). In replicated state
// it always comes from an entry's header, never from a local clock.
type Nanos int64

// After is n plus d, or the last point in time there is. A negative d counts as
// none. Clients name durations, so a sum may be anything.
func (n Nanos) After(d time.Duration) Nanos {
	return n + min(Nanos(max(d, 0)), math.MaxInt64-max(n, 0))
}

// NanosOf is t, or the nearest point in time there is: clients name years that
// time.Time.UnixNano has no answer for.
func NanosOf(t time.Time) Nanos {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return Nanos(t.UnixNano())
}
