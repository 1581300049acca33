package mesh

import (
	"testing"

	"github.com/heraldmq/herald/broker/front"
	"github.com/heraldmq/herald/replication/peer"
)

// sunk swallows what is sent.
type sunk struct{ *fakeNet }

func (sunk) Send(string, peer.Channel, []byte) error { return nil }

// FuzzReceive: nothing that a peer sends may do harm.
func FuzzReceive(f *testing.F) {
	var w writer
	w.add(front.Interest{Account: "$G", Subject: "a.*", Weight: 1})
	w.add(front.Interest{Account: "$G", Subject: "a.b", Queue: "q", Weight: 3})
	w.add(front.Interest{Account: "none", Subject: ">", Weight: 1})
	w.end()
	f.Add(w.chunks[0])
	srv, err := front.New(front.Options{})
	must(f, err)
	m := New(Options{Network: sunk{newFakeHub().node("A")}, Server: srv})
	a := srv.GlobalAccount()
	got := 0
	for _, q := range []string{"", "q"} {
		_, err = a.Subscribe("a.>", q, func(msg *front.Message) {
			got += len(msg.Subject) + len(msg.Reply) + len(msg.Header) + len(msg.Payload)
			msg.Respond(nil, msg.Payload)
		})
		must(f, err)
	}
	f.Add(front.AppendForward(nil, &front.Message{
		Account: a, Subject: []byte("a.b"), Reply: []byte("r"), Header: []byte("NATS/1.0\r\n\r\n"), Payload: []byte("x"),
		Client: &front.ClientInfo{ID: 7, User: "joe", Account: "$G"},
	}))
	f.Add([]byte("M\x02$G\x00\x03\x03\x00\x00\x01\x06\x01\x01qa.b1\r\nx\r\n"))
	f.Add([]byte("R\x02$G\x00\x02\x03\x00\x00\x01\x06\x01\x01za.b1\r\nx\r\n"))
	f.Add([]byte("P\x03"))
	f.Add([]byte("pM\x00"))
	f.Add([]byte("S\x07"))
	f.Add([]byte("A"))
	f.Fuzz(func(_ *testing.T, chunk []byte) {
		m.receive("B", peer.ChannelMesh, chunk)
		m.link("B").down()
	})
}
