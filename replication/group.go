package replication

import (
	"github.com/heraldmq/herald/topics"
)

// Group is one replicated log with its state machine. Its methods may be called
// by any number of goroutines.
type Group struct{}

// Propose asks for data to be committed. It never waits for the disk: it refuses
// with a typed error what can't be taken now. The group keeps data; nobody may
// change it any more.
func (g *Group) Propose(data []byte) *Proposal { panic("not yet") }

// Leader returns who leads ("" when nobody is known to) and whether it is this
// node.
func (g *Group) Leader() (id string, isLeader bool) { panic("not yet") }

// Term returns the current term.
func (g *Group) Term() uint64 { panic("not yet") }

// LeaderChanges carries whether this node leads. It holds the latest value only:
// a slow reader misses flips, never the last state. For one reader.
func (g *Group) LeaderChanges() <-chan bool { panic("not yet") }

// LastIndex returns the last index of the log here, committed or not.
func (g *Group) LastIndex() topics.Index { panic("not yet") }

// Committed returns the last index known to be committed.
func (g *Group) Committed() topics.Index { panic("not yet") }

// Entry returns an entry's data if it is still in memory. It is shared: it must
// not be changed, and stays valid for as long as it is referenced.
func (g *Group) Entry(i topics.Index) ([]byte, bool) { panic("not yet") }

// Flushed tells that the state machine's own files hold everything up to i,
// durably. The log below the flush before this one may then be recycled. It does
// not wait for that.
func (g *Group) Flushed(i topics.Index) error { panic("not yet") }

// Stats is a group's state for monitoring.
type Stats struct {
	Group     topics.GroupID
	State     string // "Leader", "Follower", "Candidate", "Shutdown"
	Leader    string
	Term      uint64
	First     topics.Index // first entry in the log, 0 when it is empty
	Last      topics.Index
	Committed topics.Index
	Applied   topics.Index
	Flushed   topics.Index
	Snapshot  topics.Index // index of the last snapshot
	Pending   int          // proposals without outcome
	NoSpace   bool         // proposals are refused for want of disk space
	LogBytes  int64        // of the node's write-ahead log, live segments
}

// Stats returns the group's state.
func (g *Group) Stats() Stats { panic("not yet") }
