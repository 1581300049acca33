package replication

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// raftTransport is what raft uses of a transport.
type raftTransport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// committer is a transport that tells followers of commits by itself.
type committer interface{ Committed(index uint64) }

// aheadSender is a transport that sends entries before they are written here.
type aheadSender interface{ Ahead(logs []*raft.Log) }

// transportOptions is what the transport of a group is made with.
type transportOptions struct {
	prefetch     prefetch
	entry        func(index uint64, into *raft.Log) error
	beat, notice time.Duration
	hung         func() bool
}

// handler answers a call.
type handler = func(ctx context.Context, from string, body []byte) ([]byte, error)

// prefetch is called with another node's snapshot before raft sees it.
type prefetch = func(ctx context.Context, from string, manifest []byte) error

// links is what a node uses of its network; tests have one without sockets.
type links interface {
	Name() string
	Online(node string) bool
	Peers() []string // connected, by name
	Handle(method string, h handler)
	Call(ctx context.Context, to, method string, body []byte) ([]byte, error)
	HandleStream(method string, h func(ctx context.Context, from string, body []byte, w io.Writer) error)
	OpenStream(ctx context.Context, to, method string, body []byte) (io.ReadCloser, error)
	Transport(group topics.GroupID, replica string, o transportOptions) raftTransport
	// OnChange registers who is told, in order and on one goroutine, that a node was
	// connected, or that its process is known to have ended.
	OnChange(up, dead func(node string))
}

// network is the links of a real network.
type network struct{ *peer.Network }

func (n network) Online(node string) bool {
	_, ok := n.Peer(node)
	return ok
}

func (n network) Peers() []string {
	var names []string
	for _, p := range n.Network.Peers() {
		names = append(names, p.Name)
	}
	return names
}

func (n network) Handle(method string, h handler) { n.Network.Handle(method, h) }

func (n network) Transport(group topics.GroupID, replica string, o transportOptions) raftTransport {
	t := n.Network.Transport(group, replica)
	t.Prefetch, t.Entry, t.Beat, t.Notice, t.Hung = o.prefetch, o.entry, o.beat, o.notice, o.hung
	return t
}

func (n network) OnChange(up, dead func(node string)) {
	n.Network.OnChange(func(e peer.Event) {
		switch e.Kind {
		case peer.Up:
			up(e.Peer.Name)
		case peer.Refused:
			dead(e.Peer.Name)
		}
	})
}

// What nodes ask each other.
const (
	methodStatus = "replication.status"
	methodJoin   = "replication.join"
	methodLeave  = "replication.leave"
	methodForm   = "replication.form"
	methodFile   = "replication.file"
)

// listen registers what this node answers.
func (n *Node) listen() {
	n.links.Handle(methodStatus, n.answerStatus)
	n.links.Handle(methodJoin, n.answerJoin)
	n.links.Handle(methodLeave, n.answerLeave)
	n.links.Handle(methodForm, n.forming.answer)
	n.links.Handle(methodDigest, n.answerDigest)
	n.links.HandleStream(methodFile, n.sendFile)
	n.links.OnChange(n.peerUp, n.peerDead)
}

// sendFile answers the FileReceiver of another node.
func (n *Node) sendFile(ctx context.Context, from string, body []byte, w io.Writer) error {
	if len(body) < 4 {
		return fmt.Errorf("send a file to %s: the request has %d bytes", from, len(body))
	}
	id := topics.GroupID(binary.LittleEndian.Uint32(body))
	g := n.group(id)
	if g == nil {
		return fmt.Errorf("send a file to %s: group %d doesn't run here", from, id)
	}
	source, ok := g.machine.sm.(FileSource)
	if !ok {
		return fmt.Errorf("send a file to %s: group %d has none", from, id)
	}
	return source.SendFile(ctx, body[4:], &pacedWriter{w, ctx, &n.pace})
}

// prefetch has the state machine fetch the files of another node's snapshot.
func (g *Group) prefetch(ctx context.Context, from string, manifest []byte) error {
	receiver, ok := g.machine.sm.(FileReceiver)
	if !ok {
		return nil
	}
	return receiver.Prefetch(ctx, manifest, func(ctx context.Context, request []byte) (io.ReadCloser, error) {
		body := binary.LittleEndian.AppendUint32(nil, uint32(g.id))
		return g.node.links.OpenStream(ctx, from, methodFile, append(body, request...))
	})
}

// group returns a running group, nil if there is none.
func (n *Node) group(id topics.GroupID) *Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.groups[id]
}

// running returns the groups that run.
func (n *Node) running() []*Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	var groups []*Group
	for _, g := range n.groups {
		if g != nil {
			groups = append(groups, g)
		}
	}
	return groups
}
