package replication

import "context"

// Transfer hands the lead to a node that votes in the group, "" for the one that is
// best placed. What is proposed meanwhile waits, and is refused with ErrNotLeader once
// the other leads. It returns when this node leads no more; after an error it leads
// on, unless the error Is ErrNotLeader. It ends by itself within a few seconds.
func (g *Group) Transfer(ctx context.Context, to string) error { return nil }

// Campaign makes this node stand for election now, though there may be a leader: for
// when its process is known to be dead. It does nothing on a replica without a vote.
func (g *Group) Campaign() {}
