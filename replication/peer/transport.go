package peer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/raftwire"
	"github.com/heraldmq/herald/replication/peer/wire"
	"github.com/heraldmq/herald/topics"
)

const (
	// rpcsMax is how many RPCs raft may have been handed and not answered yet. More
	// are answered ErrBusy.
	rpcsMax = 256
	// appendBytesMax is how much data one AppendEntries carries, unless it is a single
	// entry.
	appendBytesMax = 8 << 20
	appendTimeout  = 10 * time.Second
	voteTimeout    = 3 * time.Second
	// reconnectFor is how long entries for a peer that isn't connected wait for it.
	reconnectFor = 15 * time.Second
	// notStartedYet is how long after it was told that a replica doesn't run there a
	// node is asked again.
	notStartedYet = 25 * time.Millisecond
)

// The first byte of a message of kind Raft or Append.
const (
	raftRequest byte = iota + 1
	raftAnswer
	raftWorking // a snapshot is being installed; ask me later
)

// Transport is the raft transport of one replica: raft.Transport, raft.WithPreVote
// and raft.WithClose. An address is the name of a node, or that and anything after a
// slash: "a/1f2e3d4c", as raft allows no two members with one address, and a node
// has two while a new replica takes over from an old one. RPCs name the replica they are
// meant for, and are refused (ErrWrongReplica) by any other: a replica that has lost
// its files comes back with another id and can't vote for what the old one has seen.
//
// Heartbeats are handed to raft like any other RPC: the fast path of raft 1.8.0
// changes the term behind the back of raft's main goroutine (its issue #695). They wait
// for each other, see Beat: no reader waits for them.
//
// AppendEntries for a peer that isn't connected waits up to 15 s for it instead of
// failing: raft answers failures with pauses that grow to ten seconds, and would
// make a node that has come back wait for them. So call Close before raft.Shutdown,
// or the shutdown waits for these.
type Transport struct {
	// Prefetch is called at a follower with the bytes of a snapshot before raft gets
	// them, on a goroutine of its own: what it fetches doesn't hold up raft. An error
	// refuses the snapshot; the leader will try again. ctx ends with the connection
	// and with Close. Set before raft is started; nil: none.
	Prefetch func(ctx context.Context, from string, manifest []byte) error
	// Beat, when it isn't zero, makes heartbeats wait for the next multiple of it, so
	// that those of all groups to all peers leave together: what a quiet node costs is how
	// often it wakes up. Notice is how long a follower may not know that an entry is
	// committed, see Committed. Both are set before raft is started.
	Beat, Notice time.Duration
	// Hung, when it isn't nil, tells that this node can't do what a leader must: then
	// heartbeats cease, so that another one is elected. Set before raft is started.
	Hung func() bool
	// Entry reads an entry of this replica's own log, for Ahead. It may fail. Set before
	// raft is started; may be nil.
	Entry func(index uint64, into *raft.Log) error

	n        *Network
	group    topics.GroupID
	replica  string
	consumer chan raft.RPC
	answers  chan answering
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup

	installing atomic.Bool
	// doubts counts the heartbeats that were answered otherwise than with yes.
	doubts  atomic.Uint64
	quiet   atomic.Uint64 // empty appends that weren't sent
	notices atomic.Uint64 // of commit indexes
	ahead   atomic.Uint64 // appends that were sent before raft asked for them
	commits commits
	beats   beats
}

// commits is what a transport knows of the commit index.
type commits struct {
	mu        sync.Mutex // not held while a pipeline's is being waited for by its holder
	index     uint64
	since     uint64 // the index when the timer was set
	armed     bool
	timer     *time.Timer
	pipelines []*pipeline
	before    map[raft.ServerID]position // what followers acknowledged that have no pipeline yet
}

// position is what a follower has acknowledged.
type position struct {
	l      *link
	acked  acked
	commit uint64
	header raft.RPCHeader
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// answering is an RPC that raft works on.
type answering struct {
	l    *link
	id   uint64
	beat bool // a heartbeat
	resp chan raft.RPCResponse
}

// Transport makes the transport of a replica of a group, the only one of that group
// on this node; an older one is closed. RPCs are accepted from now on.
func (n *Network) Transport(group topics.GroupID, replica string) *Transport {
	t := &Transport{
		n: n, group: group, replica: replica,
		consumer: make(chan raft.RPC, rpcsMax), answers: make(chan answering, rpcsMax),
	}
	t.ctx, t.cancel = context.WithCancel(n.ctx)
	t.work.Go(t.answer)
	n.mu.Lock()
	old := n.transports[group]
	n.transports[group] = t
	n.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	return t
}

// Close refuses RPCs from now on and fails those on their way.
func (t *Transport) Close() error {
	t.n.mu.Lock()
	if t.n.transports[t.group] == t {
		delete(t.n.transports, t.group)
	}
	t.n.mu.Unlock()
	t.cancel()
	t.commits.stop()
	t.work.Wait()
	return nil
}

// Consumer implements raft.Transport.
func (t *Transport) Consumer() <-chan raft.RPC { return t.consumer }

// nodeOf is the node of an address.
func nodeOf(addr raft.ServerAddress) string {
	if i := strings.LastIndexByte(string(addr), '/'); i > 0 {
		return string(addr[:i])
	}
	return string(addr)
}

// LocalAddr is the name of this node.
func (t *Transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.n.o.Name) }

// EncodePeer implements raft.Transport.
func (t *Transport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer implements raft.Transport.
func (t *Transport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler does nothing, on purpose; see Transport.
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// RequestVote implements raft.Transport.
func (t *Transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.small(id, target, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return t.small(id, target, args, resp)
}

// TimeoutNow implements raft.Transport. The target may be this very replica.
func (t *Transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.small(id, target, args, resp)
}

func (t *Transport) small(id raft.ServerID, target raft.ServerAddress, args, resp any) error {
	if nodeOf(target) == t.n.o.Name {
		return t.toSelf(string(id), args, resp)
	}
	l := t.n.link(nodeOf(target))
	if l == nil {
		return ErrNoPeer
	}
	return t.roundTrip(l, wire.Raft, 0, voteTimeout, resp, func(rpc uint64) ([][]byte, error) {
		b, err := raftwire.Encode(t.envelope(rpc, id), args)
		return [][]byte{b}, err
	})
}

func (t *Transport) envelope(rpc uint64, id raft.ServerID) raftwire.Envelope {
	return raftwire.Envelope{ID: rpc, Group: uint32(t.group), Target: string(id)}
}

// toSelf hands an RPC to the raft that sends it.
func (t *Transport) toSelf(id string, args, resp any) error {
	if id != t.replica {
		return ErrWrongReplica
	}
	got := make(chan raft.RPCResponse, 1)
	select {
	case t.consumer <- raft.RPC{Command: args, RespChan: got}:
	case <-t.ctx.Done():
		return raft.ErrTransportShutdown
	}
	select {
	case r := <-got:
		if r.Error != nil {
			return r.Error
		}
		b, err := raftwire.EncodeResponse(r.Response)
		if err != nil {
			return err
		}
		return raftwire.DecodeResponse(b, resp)
	case <-t.ctx.Done():
		return raft.ErrTransportShutdown
	}
}

func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// AppendEntries implements raft.Transport. args.Entries is cut short where it is
// larger than one RPC should be; raft sends the rest next.
func (t *Transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if !isHeartbeat(args) {
		return t.appendPatiently(id, target, args, resp)
	}
	return t.heartbeat(id, target, args, resp)
}

// appendPatiently waits for a follower that isn't connected, or whose replica isn't
// started yet. An error would make raft wait longer with each, up to ten seconds, and
// a node that is back for long would be sent nothing.
func (t *Transport) appendPatiently(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	shorten(args)
	for end := time.Now().Add(reconnectFor); ; {
		l := t.n.waitLink(t.ctx, nodeOf(target), time.Until(end))
		if l == nil {
			return ErrNoPeer
		}
		began := time.Now()
		doubts := t.doubts.Load()
		err := t.appendOnce(l, id, args, resp, wire.Append, uint32(t.group))
		if err == nil && resp.Success && resp.Term <= args.Term {
			t.commits.remember(id, position{l, ackedBy(args, doubts, began), args.LeaderCommitIndex, args.RPCHeader})
		}
		if !errors.Is(err, ErrNoHandler) || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(notStartedYet):
		case <-t.ctx.Done():
			return raft.ErrTransportShutdown
		}
	}
}

func (t *Transport) appendOnce(l *link, id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, kind wire.Kind, lane uint32) error {
	err := t.roundTrip(l, kind, lane, appendTimeout, resp, func(rpc uint64) ([][]byte, error) {
		return raftwire.EncodeAppend(t.envelope(rpc, id), args), nil
	})
	if err == nil && (!resp.Success || resp.Term > args.Term) {
		t.doubts.Add(1)
	}
	return err
}

// shorten leaves as many entries as one RPC carries. Raft looks at the entries again
// when the answer has come, so it knows which were sent.
func shorten(args *raft.AppendEntriesRequest) {
	size := 0
	for i, e := range args.Entries {
		size += len(e.Data) + len(e.Extensions)
		if i > 0 && size > appendBytesMax {
			args.Entries = args.Entries[:i]
			return
		}
	}
}

// waitLink waits for a peer to be connected.
func (n *Network) waitLink(ctx context.Context, name string, limit time.Duration) *link {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		n.mu.Lock()
		l, changed := n.links[name], n.connected
		up := l != nil && l.up
		n.mu.Unlock()
		if up {
			return l
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// roundTrip sends a request and decodes the answer into resp.
func (t *Transport) roundTrip(l *link, kind wire.Kind, lane uint32, timeout time.Duration, resp any, encode func(rpc uint64) ([][]byte, error)) error {
	got := make(chan error, 1)
	rpc, err := l.send(kind, lane, time.Now().Add(timeout), encode, func(status byte, body []byte, err error) {
		if err == nil {
			err = answerErr(l.name, status, body)
		}
		if err == nil {
			err = raftwire.DecodeResponse(body, resp)
		}
		got <- err
	})
	if err != nil {
		return err
	}
	select {
	case err := <-got:
		return err
	case <-t.ctx.Done():
		if l.take(rpc) == nil {
			<-got // resp is being written to
		}
		return raft.ErrTransportShutdown
	}
}

// send sends one of raft's requests.
func (l *link) send(kind wire.Kind, lane uint32, deadline time.Time, encode func(rpc uint64) ([][]byte, error), done func(status byte, body []byte, err error)) (uint64, error) {
	rpc, ok := l.ask(&pending{deadline: deadline, done: done})
	if !ok {
		return 0, ErrNoPeer
	}
	segments, err := encode(rpc)
	if err == nil {
		m := newMessage(append([][]byte{{raftRequest}}, segments...)...)
		if kind == wire.Raft {
			err = l.out.push(kind, lane, m) // the heartbeats of other groups may join it
		} else {
			err = l.sendNow(kind, lane, m)
		}
	}
	if err != nil && l.take(rpc) != nil {
		return 0, err
	}
	return rpc, nil
}

// queue puts one of raft's requests in line; writeNow writes it.
func (l *link) queue(kind wire.Kind, lane uint32, deadline time.Time, encode func(rpc uint64) [][]byte, done func(status byte, body []byte, err error)) error {
	rpc, ok := l.ask(&pending{deadline: deadline, done: done})
	if !ok {
		return ErrNoPeer
	}
	m := newMessage(append([][]byte{{raftRequest}}, encode(rpc)...)...)
	if err := l.out.put(kind, lane, m); err != nil && l.take(rpc) != nil {
		return err
	}
	return nil
}
