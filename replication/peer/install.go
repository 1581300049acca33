package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/raftwire"
	"github.com/heraldmq/herald/replication/peer/wire"
)

const (
	snapshotMethod = "raft.snapshot"
	// snapshotBytesMax is how much of a snapshot is received before raft gets it, so
	// that raft's goroutine doesn't wait for the network; also the most a manifest has.
	snapshotBytesMax = 64 << 20
	workingEvery     = time.Second
)

// outgoing is a snapshot that a follower may read, once.
type outgoing struct {
	peer string
	data io.Reader
	size int64
	ctx  context.Context
	done chan struct{} // closed when nobody reads data any more
}

// InstallSnapshot implements raft.Transport. The follower is told that there is a
// snapshot and reads it as a stream. There is no limit on how long it takes: it
// fails when the follower says nothing for ten seconds.
func (t *Transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	l := t.n.link(nodeOf(target))
	if l == nil {
		return ErrNoPeer
	}
	o := &outgoing{peer: nodeOf(target), data: data, size: args.Size, done: make(chan struct{})}
	var cancel context.CancelFunc
	o.ctx, cancel = context.WithCancel(t.ctx)
	token := rand.Uint64() | 1
	t.n.mu.Lock()
	t.n.snapshots[token] = o
	t.n.mu.Unlock()
	// The data is the caller's again when this returns.
	defer func() {
		cancel()
		t.n.mu.Lock()
		_, unread := t.n.snapshots[token]
		delete(t.n.snapshots, token)
		t.n.mu.Unlock()
		if !unread {
			<-o.done
		}
	}()
	return t.roundTrip(l, wire.Raft, 0, appendTimeout, resp, func(rpc uint64) ([][]byte, error) {
		e := t.envelope(rpc, id)
		e.Token = token
		b, err := raftwire.Encode(e, args)
		return [][]byte{b}, err
	})
}

// serveSnapshot writes a snapshot to the follower it is for.
func (n *Network) serveSnapshot(_ context.Context, from string, body []byte, w io.Writer) error {
	f := wire.NewFields(body)
	token := f.Uint()
	n.mu.Lock()
	o := n.snapshots[token]
	if o != nil && o.peer == from {
		delete(n.snapshots, token)
	}
	n.mu.Unlock()
	if o == nil || o.peer != from {
		return errors.New("there is no such snapshot any more")
	}
	defer close(o.done)
	if s, ok := w.(*streamWriter); ok {
		defer context.AfterFunc(o.ctx, s.cancel)()
	}
	_, err := io.CopyN(w, o.data, o.size)
	return err
}

// install receives a snapshot and hands it to raft, on a goroutine of its own, one
// at a time.
func (t *Transport) install(l *link, e raftwire.Envelope, req *raft.InstallSnapshotRequest) {
	if !t.installing.CompareAndSwap(false, true) {
		l.answerRaft(e.ID, answerBusy, nil)
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	l.work.Go(func() {
		l.sayWorking(ctx, e.ID)
	})
	l.work.Go(func() {
		defer t.installing.Store(false)
		defer stop()
		defer cancel()
		resp, err := t.receiveSnapshot(ctx, l, e, req)
		if err != nil {
			t.n.log.Warn("a snapshot can't be installed", "group", t.group, "from", l.name, "error", err)
		}
		l.answerRPC(e.ID, raft.RPCResponse{Response: resp, Error: err}, false)
	})
}

// sayWorking tells the leader that it should go on waiting.
func (l *link) sayWorking(ctx context.Context, rpc uint64) {
	ticker := time.NewTicker(workingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = l.out.push(wire.Raft, 0, newMessage(wire.AppendUint([]byte{raftWorking}, rpc)))
		}
	}
}

func (t *Transport) receiveSnapshot(ctx context.Context, l *link, e raftwire.Envelope, req *raft.InstallSnapshotRequest) (any, error) {
	stream, err := t.n.OpenStream(ctx, l.name, snapshotMethod, wire.AppendUint(nil, e.Token))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if req.Size < 0 || t.Prefetch != nil && req.Size > snapshotBytesMax {
		return nil, fmt.Errorf("peer: a manifest of %d bytes, at most %d are allowed", req.Size, snapshotBytesMax)
	}
	first := make([]byte, min(req.Size, snapshotBytesMax))
	if _, err := io.ReadFull(stream, first); err != nil {
		return nil, fmt.Errorf("peer: receive a snapshot: %w", err)
	}
	if t.Prefetch != nil {
		_, err := l.guarded(func() ([]byte, error) { return nil, t.Prefetch(ctx, l.name, first) })
		if err != nil {
			return nil, fmt.Errorf("peer: fetch the files of a snapshot: %w", err)
		}
	}
	rpc := raft.RPC{Command: req, Reader: bytes.NewReader(first)}
	if rest := req.Size - int64(len(first)); rest > 0 {
		rpc.Reader = io.MultiReader(rpc.Reader, io.LimitReader(stream, rest))
	}
	got := make(chan raft.RPCResponse, 1)
	rpc.RespChan = got
	select {
	case t.consumer <- rpc:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	// When the connection ends meanwhile, raft goes on with what it has.
	select {
	case r := <-got:
		return r.Response, r.Error
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
