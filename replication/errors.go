package replication

import (
	"errors"
	"fmt"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
)

// What a proposal can end with. ErrNotLeader, ErrNoSpace, ErrBusy, ErrClosed and
// ErrBadProposal are refusals: the entry is not in the log and never will be.
// ErrOutcomeUnknown is neither yes nor no.
var (
	// ErrNotLeader: propose on the node that Group.Leader names.
	ErrNotLeader = errors.New("this node does not lead the group")
	// ErrNoSpace: the disk is (nearly) full. Reads go on; proposals are taken
	// again by themselves once there is space.
	ErrNoSpace = disk.ErrNoSpace
	// ErrBusy: too many proposals are waiting (Config.QueueMax, QueueBytesMax).
	// Wait for one of yours to end.
	ErrBusy = errors.New("too many proposals are waiting")
	// ErrClosed: the group or its node is closed or closing.
	ErrClosed = errors.New("the group is closed")
	// ErrBadProposal: the entry is empty.
	ErrBadProposal = errors.New("an entry must have at least one byte")
	// ErrOutcomeUnknown: leadership was lost, or the node closed, while the entry
	// was on its way. It may be committed later, or never; whoever must know
	// has to look at the state, or propose again under a message id.
	ErrOutcomeUnknown = errors.New("the outcome of the proposal is unknown")
)

// ErrOnlyReplica: no other node confirms that it holds the group, so what is here,
// damaged as it is, may be all there is. Restore it, or bring the other nodes back.
var ErrOnlyReplica = errors.New("no other node confirms that it holds the group")

// What Fatal can be called with, besides I/O errors.
var (
	// ErrDiskHung: a write has not come back within Config.WriteDeadline.
	ErrDiskHung = disk.ErrHung
	// ErrStuck: this node leads, but a proposal has had no outcome for
	// Config.StuckDeadline. hashicorp/raft #696 and #498 end like that, and only a
	// restart cures them.
	ErrStuck = errors.New("a proposal has had no outcome for too long")
)

// CorruptError names damage found in a file. The data is neither served nor cut
// off: the node must fetch it from a peer, or the operator must restore it.
type CorruptError = disk.CorruptError

// LockedError is returned by Open when another process has the directory.
type LockedError struct {
	Path string // of the lock file
	PID  int    // of the holder; 0 when it could not be read
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("lock %s: held by another process; stop it, or give this node another directory", e.Path)
	}
	return fmt.Sprintf("lock %s: held by process %d; stop it, or give this node another directory", e.Path, e.PID)
}

// GapError is returned by Start when the state machine's own files end before
// the log begins: entries Applied+1 to First-1 are missing.
type GapError struct {
	Group   topics.GroupID
	Applied topics.Index // the last the state machine holds
	First   topics.Index // the first the log holds; 0 when it holds none
	Cause   error        // why the snapshot did not help, if there was one
}

func (e *GapError) Error() string {
	s := fmt.Sprintf("group %d: the state machine holds entries up to %d, the log begins at %d: the entries between are missing; restore the group's directory from a backup or from a peer",
		e.Group, e.Applied, e.First)
	if e.Cause != nil {
		s += fmt.Sprintf(" (the snapshot did not help: %v)", e.Cause)
	}
	return s
}

func (e *GapError) Unwrap() error { return e.Cause }

// LostLogError is returned by Start when the log ends before what the state
// machine has already applied: acknowledged entries have gone from the log.
type LostLogError struct {
	Group   topics.GroupID
	Applied topics.Index
	Last    topics.Index
}

func (e *LostLogError) Error() string {
	return fmt.Sprintf("group %d: the state machine has applied entry %d, the log ends at %d: acknowledged entries are missing from the log; restore it from a backup or from a peer",
		e.Group, e.Applied, e.Last)
}
