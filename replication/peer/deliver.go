package peer

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/raftwire"
	"github.com/heraldmq/herald/replication/peer/wire"
	"github.com/heraldmq/herald/topics"
)

// receiveRaft takes one of raft's messages from a peer.
func (n *Network) receiveRaft(l *link, m wire.Message) error {
	f := wire.NewFields(m.Body)
	switch kind := f.Byte(); kind {
	case raftRequest:
		e := raftwire.DecodeEnvelope(f)
		command, err := raftwire.DecodeRequest(e.Type, f)
		if err != nil {
			return err
		}
		n.deliver(l, e, command)
	case raftAnswer:
		id, status, body := f.Uint(), f.Byte(), f.Rest()
		if f.Err() == nil {
			l.answer(id, status, body)
		}
	case raftWorking:
		l.extend(f.Uint(), time.Now().Add(appendTimeout))
	default:
		return fmt.Errorf("%w: raft message %d", wire.ErrFrame, kind)
	}
	return f.Err()
}

// extend gives a question more time.
func (l *link) extend(id uint64, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pending[id]; p != nil {
		p.deadline = deadline
	}
}

// deliver hands an RPC to the raft it is meant for.
func (n *Network) deliver(l *link, e raftwire.Envelope, command any) {
	n.mu.Lock()
	t := n.transports[topics.GroupID(e.Group)]
	n.mu.Unlock()
	switch {
	case t == nil:
		l.answerRaft(e.ID, answerNoHandler, []byte(fmt.Sprintf("group %d doesn't run here", e.Group)))
		return
	case t.replica != e.Target:
		l.answerRaft(e.ID, answerWrongReplica, []byte(fmt.Sprintf("for %s, this is %s", e.Target, t.replica)))
		return
	}
	if req, ok := command.(*raft.InstallSnapshotRequest); ok {
		t.install(l, e, req)
		return
	}
	req, ok := command.(*raft.AppendEntriesRequest)
	a := answering{l, e.ID, ok && isHeartbeat(req), make(chan raft.RPCResponse, 1)}
	select {
	case t.answers <- a:
	default:
		l.answerRaft(e.ID, answerBusy, nil)
		return
	}
	select {
	case t.consumer <- raft.RPC{Command: command, RespChan: a.resp}:
	default:
		a.resp <- raft.RPCResponse{Error: ErrBusy}
	}
}

// answer sends raft's answers. Raft works on one RPC after the other, so waiting for
// them in order holds up none.
func (t *Transport) answer() {
	for {
		select {
		case a := <-t.answers:
			select {
			case r := <-a.resp:
				a.l.answerRPC(a.id, r, a.beat)
			case <-t.ctx.Done():
				a.l.answerRaft(a.id, answerError, []byte("the replica is closed"))
			}
		case <-t.ctx.Done():
			return
		}
	}
}

func (l *link) answerRPC(id uint64, r raft.RPCResponse, beat bool) {
	err := r.Error
	var b []byte
	if err == nil {
		b, err = raftwire.EncodeResponse(r.Response)
	}
	if err != nil {
		status, text := answerOf(err)
		l.answerRaft(id, status, text)
		return
	}
	if beat {
		l.answerRaft(id, answerOK, b) // those of other groups may join it
		return
	}
	_ = l.sendNow(wire.Raft, 0, raftAnswerMessage(id, answerOK, b))
}

func raftAnswerMessage(id uint64, status byte, body []byte) message {
	b := append(wire.AppendUint(append(make([]byte, 0, 10+len(body)), raftAnswer), id), status)
	return newMessage(append(b, body...))
}

// answerRaft may be called by the goroutine that reads: it doesn't block.
func (l *link) answerRaft(id uint64, status byte, body []byte) {
	if err := l.out.push(wire.Raft, 0, raftAnswerMessage(id, status, body)); errors.Is(err, ErrFull) {
		l.end(fmt.Errorf("peer: it takes no answers: %w", err), false)
	}
}
