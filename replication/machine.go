package replication

import (
	"context"
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

// Discarder is a StateMachine that wants the results back that nobody waits for: those
// of entries that another node proposed, before all. Discard is called on the goroutine
// of Apply, after it.
type Discarder interface {
	Discard(result any)
}

// FileSource is a StateMachine whose snapshots are manifests of files. SendFile
// writes what a replica that installs such a snapshot asked for. It is called on
// any goroutine.
type FileSource interface {
	SendFile(ctx context.Context, request []byte, w io.Writer) error
}

// FileReceiver is the other end: Prefetch is called with the manifest of another
// node's snapshot before raft sees it, beside Apply and not on raft's goroutine. It
// asks for the files it lacks; Restore then adopts them. After an error the leader
// tries again, and what has been fetched should be found then. Only one call of a
// group runs at a time.
type FileReceiver interface {
	Prefetch(ctx context.Context, manifest []byte, fetch Fetch) error
}

// Fetch asks the node a manifest is from; its FileSource answers.
type Fetch func(ctx context.Context, request []byte) (io.ReadCloser, error)
