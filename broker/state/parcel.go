package state

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// What is forwarded to the leader of a group. All integers are little-endian.
//
//	parcel   any number of: flags u8, account (unless it is that of the message before), topic u64,
//	         subject, reply, header length u32, payload length u32, header, payload
//	chunk    flags u8, a piece of what follows
//	sent     the term of the leader it is meant for u64, the parcel's number u64, how many marks
//	         were sent before u32, the parcel
//	mark     flags u8, number u32: its echo is sent when all before it has been dealt with
const parcelMax = 80 << 20 // of what is put together from pieces

// Flags of a chunk.
const (
	chunkFirst = 1 << iota // of a parcel
	chunkLast
	chunkReturned // the parcel goes back to where it was captured
	chunkMark
	chunkEcho

	chunkTries = 5 // the bits from here on say how often the parcel has been sent before
)

// Flags of a message.
const (
	capturedByClient  = 1 << iota // not by the broker itself
	capturedSameOwner             // the account is that of the message before
	capturedMapped                // the topic's subject transform has been applied
)

// parcel is messages on their way to the group's leader.
type parcel struct {
	data     []byte
	since    time.Time
	tries    byte           // how often it was sent before
	number   uint64         // its place among those that were sent, or came back; 0: neither yet
	epoch    uint32         // in which it was sent last
	again    bool           // it goes before what has not been sent
	settled  bool           // it has been in its topic's limbo
	from     *sender        // in a limbo: who sent it; nil: it was captured here
	given    bool           // in a limbo: it is being given away, and takes nothing more
	account  *front.Account // of the last message
	messages int
}

func (p *parcel) append(m *front.Captured) {
	flags := byte(0)
	if m.Client != nil {
		flags |= capturedByClient
	}
	if m.Mapped {
		flags |= capturedMapped
	}
	same := p.messages > 0 && p.account == m.Account
	if same {
		flags |= capturedSameOwner
	}
	p.data = append(p.data, flags)
	if !same {
		p.data = appendText(p.data, accountName(m.Account))
		p.account = m.Account
	}
	p.messages++
	p.data = appendTopic(p.data, m.Topic)
	p.data = binary.LittleEndian.AppendUint16(p.data, uint16(len(m.Subject)))
	p.data = append(p.data, m.Subject...)
	p.data = binary.LittleEndian.AppendUint16(p.data, uint16(len(m.Reply)))
	p.data = append(p.data, m.Reply...)
	p.data = binary.LittleEndian.AppendUint32(p.data, uint32(len(m.Header)))
	p.data = binary.LittleEndian.AppendUint32(p.data, uint32(len(m.Payload)))
	p.data = append(append(p.data, m.Header...), m.Payload...)
}

func accountName(a *front.Account) string {
	if a == nil {
		return ""
	}
	return a.Name()
}

// byClient stands for a client of another node.
var byClient = &front.ClientInfo{Kind: "Client"}

// bytes returns the next n bytes, which are the body's.
func (b *body) bytes(n int) []byte {
	if n > len(b.rest) {
		b.bad, b.rest = true, nil
		return nil
	}
	v := b.rest[:n:n]
	b.rest = b.rest[n:]
	return v
}

// open returns the messages of a parcel, which refer to its bytes. Those of accounts
// that this node doesn't know are left out.
func (c *cluster) open(data []byte) []front.Captured {
	var out []front.Captured
	b := bodyOf(data)
	var account *front.Account
	known := true
	for len(b.rest) > 0 {
		flags := b.u8()
		if flags&capturedSameOwner == 0 {
			if name := b.text(); c.s.o.Account != nil {
				account = c.s.o.Account(name)
				known = account != nil || name == ""
			}
		}
		m := front.Captured{Topic: b.topic(), Account: account, Mapped: flags&capturedMapped != 0}
		m.Subject = b.bytes(int(b.u16()))
		m.Reply = b.bytes(int(b.u16()))
		header, payload := int(b.u32()), int(b.u32())
		m.Header = b.bytes(header)
		m.Payload = b.bytes(payload)
		if b.bad {
			c.s.o.Log.Error("messages that another node forwarded can't be read")
			break
		}
		if flags&capturedByClient != 0 {
			m.Client = byClient
		}
		if known {
			out = append(out, m)
		}
	}
	return out
}

// pieces is a parcel that has not come whole yet.
type pieces struct {
	mu sync.Mutex
	of map[pieceKey][]byte
}

type pieceKey struct {
	from     string
	channel  peer.Channel
	returned bool
}

// add puts a chunk to those before it and returns the parcel once it is whole.
func (p *pieces) add(k pieceKey, chunk []byte) (data []byte, flags byte, whole bool) {
	if len(chunk) == 0 {
		return nil, 0, false
	}
	flags, data = chunk[0], chunk[1:]
	if flags&chunkFirst != 0 && flags&chunkLast != 0 {
		return data, flags, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[pieceKey][]byte{}
	}
	before, had := p.of[k]
	delete(p.of, k)
	switch {
	case flags&chunkFirst != 0:
		before = nil
	case !had || len(before)+len(data) > parcelMax: // its beginning went with another connection
		return nil, 0, false
	}
	data = append(before, data...)
	if flags&chunkLast == 0 {
		p.of[k] = data
		return nil, 0, false
	}
	return data, flags, true
}
