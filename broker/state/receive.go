package state

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
	"github.com/heraldmq/herald/topics"
)

// sender is where a parcel came from.
type sender struct {
	node    string
	channel peer.Channel
	term    uint64 // of the leader it is meant for
	number  uint64
	epoch   uint32
	tries   byte
}

// name is the sender's node; "" for what was captured here.
func (s *sender) name() string {
	if s == nil {
		return ""
	}
	return s.node
}

const parcelHead = 20 // bytes before a parcel that is sent

// sendPieces sends a parcel in pieces that bear some flags.
func (c *cluster) sendPieces(to string, channel peer.Channel, flags byte, s *sender, data []byte) error {
	flags |= chunkFirst
	head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, s.term), s.number)
	head = binary.LittleEndian.AppendUint32(head, s.epoch)
	for rest := data; ; {
		n := min(len(rest), peer.ChunkBytesMax-1-len(head))
		if n == len(rest) {
			flags |= chunkLast
		}
		chunk := append(make([]byte, 0, n+1+len(head)), flags)
		chunk = append(append(chunk, head...), rest[:n]...)
		if err := c.net.Send(to, channel, chunk); err != nil {
			if flags&chunkFirst == 0 {
				return errPartly
			}
			return peer.ErrNoPeer
		}
		if rest = rest[n:]; len(rest) == 0 {
			return nil
		}
		flags &^= chunkFirst
		head = nil
	}
}

var errPartly = errors.New("the connection broke within a message")

// captureParcel captures a parcel here; false when this node doesn't lead, or not in
// the term that a parcel of another node was meant for.
func (g *Group) captureParcel(data []byte, from *sender, via *parcel) bool {
	r := g.local.Load()
	if r == nil || !r.isLeader() || from != nil && r.repl.Load().Term() != from.term {
		return false
	}
	messages := g.s.cl.open(data)
	return len(messages) == 0 || r.queue.capture(messages, origin{from: from, via: via})
}

// refuse tells the publishers of a parcel, which came from a node ("" for this one), that
// nobody takes their messages.
func (c *cluster) refuse(node string, data []byte) {
	if c.s.o.Replier == nil {
		return
	}
	repliers := map[*front.Account]Replier{}
	for _, m := range c.open(data) {
		if t, ok := c.s.TopicByID(m.Topic); len(m.Reply) == 0 || ok && t.noAck.Load() {
			continue
		}
		r := repliers[m.Account]
		if r == nil {
			r = c.s.o.Replier(m.Account)
			repliers[m.Account] = r
		}
		r.Answer(node, string(m.Reply), noResponders, nil)
	}
	for _, r := range repliers {
		r.Flush()
	}
}

// giveBack sends a parcel back to where it was captured, and has all that follow sent
// back too.
func (c *cluster) giveBack(s *sender, data []byte) {
	c.returning.Store(pieceKey{from: s.node, channel: s.channel}, true)
	c.sendBack(s, data)
}

// sendBack sends a parcel back to where it was captured.
func (c *cluster) sendBack(s *sender, data []byte) {
	if c.sendPieces(s.node, s.channel, chunkReturned|s.tries<<chunkTries, s, data) != nil {
		c.refuse(s.node, data)
	}
}

// answerForward takes what another node forwarded, or sends back. It is called for
// one chunk of a node and a group at a time, and blocks while the group is full: then
// that node's credit runs out, and its publishers wait.
func (c *cluster) answerForward(from string, channel peer.Channel, chunk []byte) {
	g := c.s.groups.get(c.s, topics.GroupID(channel-peer.ChannelGroup0))
	if len(chunk) == 5 && chunk[0]&(chunkMark|chunkEcho) != 0 {
		n := binary.LittleEndian.Uint32(chunk[1:])
		if chunk[0] == chunkEcho {
			g.forward.echoed(n)
			return
		}
		c.s.limbos.giveBack(from, channel)
		if r := g.local.Load(); r != nil {
			r.settle(c.s.ctx)
		}
		c.returning.Delete(pieceKey{from: from, channel: channel})
		_ = c.net.Send(from, channel, binary.LittleEndian.AppendUint32([]byte{chunkEcho}, n)) // a connection that has gone says as much
		return
	}
	if len(chunk) == 0 {
		return
	}
	key := pieceKey{from, channel, chunk[0]&chunkReturned != 0}
	data, flags, whole := c.pieces.add(key, chunk)
	if !whole || len(data) < parcelHead {
		return
	}
	s := &sender{
		node: from, channel: channel, tries: flags >> chunkTries,
		term: binary.LittleEndian.Uint64(data), number: binary.LittleEndian.Uint64(data[8:]), epoch: binary.LittleEndian.Uint32(data[16:]),
	}
	data = data[parcelHead:]
	if key.returned {
		g.forward.returned(s, data)
		return
	}
	if _, after := c.returning.Load(key); after || !g.captureParcel(data, s, nil) {
		c.giveBack(s, data)
		c.wake() // whoever sent it may not have heard of the latest term
	}
}

// settle waits until all that was captured has been applied, refused or handed back,
// for a while.
func (r *replica) settle(ctx context.Context) {
	done := r.queue.settle()
	if done == nil {
		return
	}
	t := time.NewTimer(forwardSettle)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// awaitSettled is settle for as long as the replica runs.
func (r *replica) awaitSettled() {
	if done := r.queue.settle(); done != nil {
		select {
		case <-done:
		case <-r.ctx.Done():
		}
	}
}
