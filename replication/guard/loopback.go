package guard

import (
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// Loopback is the transport of a group with one voter: it reaches nobody.
type Loopback struct {
	id     raft.ServerID
	rpcs   chan raft.RPC
	closed chan struct{}
	once   sync.Once
}

// NewLoopback returns a transport whose address is the node's name.
func NewLoopback(node string) *Loopback {
	return &Loopback{id: raft.ServerID(node), rpcs: make(chan raft.RPC, 1), closed: make(chan struct{})}
}

// Campaign makes raft stand for election now rather than after a heartbeat
// timeout. Only for a group whose one voter is this node: it skips the pre-vote
// that would protect others.
func (l *Loopback) Campaign() {
	resp := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{
		Command: &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(l.id), Addr: []byte(l.id),
		}},
		RespChan: resp,
	}
	select {
	case l.rpcs <- rpc:
	case <-l.closed:
	default: // one is waiting already
	}
}

func (l *Loopback) unreachable(id raft.ServerID) error {
	return fmt.Errorf("reach node %s: this node was started without peers", id)
}

// Consumer implements raft.Transport.
func (l *Loopback) Consumer() <-chan raft.RPC { return l.rpcs }

// LocalAddr implements raft.Transport.
func (l *Loopback) LocalAddr() raft.ServerAddress { return raft.ServerAddress(l.id) }

// AppendEntriesPipeline implements raft.Transport.
func (l *Loopback) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries implements raft.Transport.
func (l *Loopback) AppendEntries(id raft.ServerID, _ raft.ServerAddress, _ *raft.AppendEntriesRequest, _ *raft.AppendEntriesResponse) error {
	return l.unreachable(id)
}

// RequestVote implements raft.Transport.
func (l *Loopback) RequestVote(id raft.ServerID, _ raft.ServerAddress, _ *raft.RequestVoteRequest, _ *raft.RequestVoteResponse) error {
	return l.unreachable(id)
}

// RequestPreVote implements raft.WithPreVote.
func (l *Loopback) RequestPreVote(id raft.ServerID, _ raft.ServerAddress, _ *raft.RequestPreVoteRequest, _ *raft.RequestPreVoteResponse) error {
	return l.unreachable(id)
}

// InstallSnapshot implements raft.Transport.
func (l *Loopback) InstallSnapshot(id raft.ServerID, _ raft.ServerAddress, _ *raft.InstallSnapshotRequest, _ *raft.InstallSnapshotResponse, _ io.Reader) error {
	return l.unreachable(id)
}

// TimeoutNow implements raft.Transport.
func (l *Loopback) TimeoutNow(id raft.ServerID, _ raft.ServerAddress, _ *raft.TimeoutNowRequest, _ *raft.TimeoutNowResponse) error {
	return l.unreachable(id)
}

// EncodePeer implements raft.Transport.
func (l *Loopback) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer implements raft.Transport.
func (l *Loopback) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport.
func (l *Loopback) SetHeartbeatHandler(func(raft.RPC)) {}

// Close implements raft.WithClose.
func (l *Loopback) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
