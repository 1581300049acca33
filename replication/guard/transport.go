package guard

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// Transport is a transport without the heartbeat fast path: heartbeats go
// through raft's main goroutine like everything else, so none can raise the term
// while the leader writes entries of the old one (#695). The price is that a
// heartbeat waits for a write that is going on: the heartbeat timeout must be at
// least three times the worst stall of the disk.
type Transport struct{ raft.Transport }

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
