package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/heraldmq/herald/replication/disk"
	"github.com/heraldmq/herald/topics"
)

// damagedTime is how the time is written in the names below damaged/.
const damagedTime = "20060102T150405.000"

// RemoveGroup stops a group here and removes its files, its log and its votes: the
// replica is wanted no more, or has been moved to another node. The others must have
// taken it out of their configuration, or must be able to do without it.
func (n *Node) RemoveGroup(id topics.GroupID) error {
	err := n.clear(id, os.RemoveAll)
	if err != nil {
		return fmt.Errorf("remove the replica of group %d: %w", id, err)
	}
	return nil
}

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
	if !n.elsewhere(ctx, id) {
		return "", fmt.Errorf("reset the replica of group %d (%w): %w", id, reason, ErrOnlyReplica)
	}
	if g := n.group(id); g != nil {
		g.leave(ctx)
	}
	to := filepath.Join(n.cfg.Dir, "damaged", time.Now().UTC().Format(damagedTime)+"-"+strconv.FormatUint(uint64(id), 10))
	n.cfg.Log.Warn("a replica can't be used: its files are moved, it joins anew", "group", id, "reason", reason, "moved", to)
	if err := n.cfg.FS.MkdirAll(to); err != nil {
		return "", fmt.Errorf("reset the replica of group %d: %w", id, err)
	}
	err = n.clear(id, func(path string) error {
		return n.cfg.FS.Rename(path, filepath.Join(to, filepath.Base(filepath.Dir(path))+"-"+filepath.Base(path)))
	})
	if err != nil {
		return "", fmt.Errorf("reset the replica of group %d: %w", id, err)
	}
	return to, nil
}

// elsewhere tells whether another node holds the group, and could do without this one:
// it knows of a voter besides this node's.
func (n *Node) elsewhere(ctx context.Context, id topics.GroupID) bool {
	if n.links == nil {
		return false
	}
	for _, node := range n.links.Peers() {
		asked, cancel := context.WithTimeout(ctx, askTimeout)
		r, err := n.ask(asked, node, id)
		cancel()
		if err == nil && (r.others || r.leader == node) {
			return true
		}
	}
	return false
}

// leave hands over the lead, asks the leader to take this replica out of the
// configuration, and waits until it has. With two voters that is the last moment when
// it can be done. It is given up silently: the others can do it later.
func (g *Group) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, changeMax)
	defer cancel()
	if _, leads := g.Leader(); leads {
		if err := g.Transfer(ctx, ""); err != nil && !errors.Is(err, ErrNotLeader) {
			g.node.cfg.Log.Warn("a replica that is reset could not hand over its lead", "group", g.id, "error", err)
		}
	}
	for {
		if leader, leads := g.Leader(); leader != "" && !leads {
			if a, err := g.request(ctx, leader, methodLeave); err == nil && a.Leader == leader && !a.In {
				return
			}
		}
		select {
		case <-time.After(reviewSoon):
		case <-ctx.Done():
			return
		}
	}
}

// clear stops a group, if it runs, and has its directories and its vote put away.
func (n *Node) clear(id topics.GroupID, away func(path string) error) error {
	n.mu.Lock()
	g, ok := n.groups[id]
	switch {
	case n.closed:
		n.mu.Unlock()
		return ErrClosed
	case ok && g == nil:
		n.mu.Unlock()
		return fmt.Errorf("group %d is being started or removed", id)
	}
	n.groups[id] = nil // nobody starts it meanwhile
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.groups, id)
		n.mu.Unlock()
	}()
	if g != nil {
		if err := g.close(); err != nil {
			return err
		}
	}
	number := strconv.FormatUint(uint64(id), 10)
	// The log first: a crash in between is noticed at the next start, since what is
	// left says that there was one (LostLogError).
	// The witness is last, since it knows of all the others.
	votes := filepath.Join(n.cfg.Dir, "stable", number)
	paths := []string{filepath.Join(n.cfg.Dir, "groups", number), votes}
	if id == topics.CatalogueGroup {
		paths = append([]string{filepath.Join(n.cfg.Dir, "meta")}, append(paths, votes+".bolt")...)
	} else if err := n.wal.Group(uint32(id)).Drop(); err != nil {
		return err
	}
	for _, path := range paths {
		if err := away(path); err != nil && !disk.IsMissing(err) {
			return err
		}
		if err := n.cfg.FS.SyncDir(filepath.Dir(path)); err != nil {
			return err
		}
	}
	return nil
}
