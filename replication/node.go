package replication

import (
	"github.com/heraldmq/herald/topics"
)

// Node is an open directory with the groups that run in it. Its methods may be
// called by any number of goroutines.
type Node struct{}

// Open takes the directory's lock and opens what the groups share. It starts no
// group.
func Open(cfg Config) (*Node, error) { panic("not yet") }

// ID returns the node's identity.
func (n *Node) ID() string { panic("not yet") }

// GroupDir returns the directory for the own files of a group's state machine;
// it exists. "snapshots" in it is taken.
func (n *Node) GroupDir(id topics.GroupID) (string, error) { panic("not yet") }

// Start starts a group and hands it to sm. A new group is bootstrapped with this
// node as its only voter. When Start returns the group leads, and everything
// that was committed before has been applied (one voter); or it has joined.
func (n *Node) Start(id topics.GroupID, sm StateMachine) (*Group, error) { panic("not yet") }

// Close stops the groups and releases the directory. Proposals on their way end
// with ErrOutcomeUnknown at the latest. It waits for all goroutines.
func (n *Node) Close() error { panic("not yet") }
