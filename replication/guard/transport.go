package guard

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

// Transport is a transport without the heartbeat fast path: heartbeats go
// through raft's main goroutine like everything else, so none can raise the term
// while the leader writes entries of the old one (#695). The price is that a
// heartbeat waits for a write that is going on: the heartbeat timeout must be at
// least three times the worst stall of the disk.
//
// While the disk hangs it sends nothing to followers: their leader can't store
// anything, and heartbeats, which raft sends on goroutines of their own, would keep
// them calm.
type Transport struct {
	raft.Transport
	Hung func() bool // may be nil
}

// AppendEntries implements raft.Transport.
func (t Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.Hung != nil && t.Hung() {
		return fmt.Errorf("append entries to %s: %w", id, disk.ErrHung)
	}
	return t.Transport.AppendEntries(id, target, args, resp)
}

var (
	_ raft.WithPreVote = Transport{}
	_ raft.WithClose   = Transport{}
)

// SetHeartbeatHandler does nothing.
func (t Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// RequestPreVote implements raft.WithPreVote.
func (t Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	p, ok := t.Transport.(raft.WithPreVote)
	if !ok {
		return fmt.Errorf("ask %s for a pre-vote: %w", id, errors.ErrUnsupported)
	}
	return p.RequestPreVote(id, target, args, resp)
}

// Close implements raft.WithClose.
func (t Transport) Close() error {
	if c, ok := t.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}
