package replication

import (
	"fmt"

	"github.com/heraldmq/herald/replication/snapshot"
	"github.com/heraldmq/herald/topics"
)

// A data group's snapshot is a note: the replica's own files hold everything up to an
// index. Whoever has to install it asks the node that it is from for those files as
// they are by then (FileReceiver, FileSource), so that taking a snapshot costs nothing
// and no file is kept for a follower that never comes. What arrives is therefore of
// the snapshot's index or later; all of it is committed, for the other node has
// applied it. The entries up to there, which the log then brings, are passed over.

// takenOver is how far the files of a group reach by what they took over from another
// replica: so far the log need not reach.
func (g *Group) takenOver() (uint64, error) {
	dir, err := g.node.GroupDir(g.id)
	if err != nil {
		return 0, err
	}
	at, err := snapshot.Adopted(g.node.cfg.FS, dir)
	if err != nil {
		return 0, fmt.Errorf("group %d: %w", g.id, err)
	}
	return uint64(at), nil
}

// FinishRestore completes what a crash interrupted while files of another replica took
// the place of a group's own. It must be called before these are opened.
func (n *Node) FinishRestore(id topics.GroupID) error {
	dir, err := n.GroupDir(id)
	if err != nil {
		return err
	}
	return snapshot.Finish(n.cfg.FS, dir)
}
