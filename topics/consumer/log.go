package consumer

import "github.com/heraldmq/herald/topics"

// Log is what a consumer asks of its topic. *store.Topic is one for the live
// copy; the store gives New a view that is valid while it applies an entry.
type Log interface {
	// Bounds returns the first live sequence (last+1 when the topic is empty) and
	// the last assigned one.
	Bounds() (first, last topics.Sequence)
	// Next returns the first live message at or after from that f lets through.
	Next(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool)
	// Prev returns the last live message at or before from that f lets through.
	Prev(f *topics.Filter, from topics.Sequence) (topics.Sequence, bool)
	// Count returns how many live messages at or after from f lets through.
	Count(f *topics.Filter, from topics.Sequence) uint64
	// LastPerSubject returns, in order, the last live message of each subject that
	// f lets through.
	LastPerSubject(f *topics.Filter) []topics.Sequence
	// SequenceAt returns the first live message stored at or after t, last+1 if
	// there is none.
	SequenceAt(t topics.Nanos) topics.Sequence
}

// RemovalLog is a Log that can tell which removals a count has to care about.
// Without it a consumer that has fallen behind counts anew each turn; with it,
// only when something was removed ahead of it.
type RemovalLog interface {
	// RemovedSince returns the number of messages removed so far, by whatever
	// cause, and the highest sequence among those removed after mark (an earlier
	// return value; 0 counts from the beginning). It may name too high a sequence,
	// never too low a one: a bounded memory of the past is enough.
	RemovedSince(mark uint64) (now uint64, highest topics.Sequence)
}
