package replication

import (
	"io"

	"github.com/heraldmq/herald/topics"
)

// Entry is one committed entry.
type Entry struct {
	Index topics.Index
	Term  uint64
	Data  []byte // immutable for ever: it may be kept by reference
}

// StateMachine is what a group's committed entries are handed to. Apply,
// Snapshot and Restore are called on one goroutine, one at a time.
type StateMachine interface {
	// Apply gets committed entries in order; results[i] answers entries[i]'s
	// proposer. No I/O in it: while it runs nothing else of the group commits.
	Apply(entries []Entry) (results []any)

	// Applied is the index the machine already holds from its own files when the
	// group starts; entries up to it are not applied again. A machine without
	// files of its own returns 0 and is restored from the last snapshot.
	Applied() topics.Index

	// Snapshot is called between two Applies and must be cheap.
	Snapshot() (Snapshot, error)

	// Restore replaces the whole state by what Persist wrote.
	Restore(r io.Reader) error
}

// Snapshot is the state at one index.
type Snapshot interface {
	// Persist writes it; it runs beside Apply, on another goroutine. What it
	// writes must be enough for Restore.
	Persist(w io.Writer) error
	// Release is called once, whether or not Persist was.
	Release()
}
