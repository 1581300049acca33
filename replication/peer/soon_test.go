package peer

import (
	"bytes"
	"net"
	"testing"

	"github.com/heraldmq/herald/replication/peer/wire"
)

// TestWriteSoonNeverWaits: when the other side doesn't read, the rest is left to the
// goroutine that writes, and everything arrives once and in order.
func TestWriteSoonNeverWaits(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ours, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	l := &link{out: newOutbox(false), conn: ours, raw: rawConn(ours.(*net.TCPConn))}
	if l.raw == nil {
		t.Skip("this system has no writing without waiting")
	}
	const size = 30 << 10
	body := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, size) }
	sent := 0
	for ; len(l.rest) == 0 && sent < 5000; sent++ { // would hang here if it waited
		if err := l.out.put(wire.Append, 1, newMessage([]byte{1}, body(sent))); err != nil {
			t.Fatal(err)
		}
		l.writeSoon()
	}
	if len(l.rest) == 0 || !l.out.wait() {
		t.Fatalf("%d messages fit into the socket, or the rest is forgotten", sent)
	}
	for range 3 { // behind the rest
		if err := l.out.put(wire.Append, 1, newMessage([]byte{1}, body(sent))); err != nil {
			t.Fatal(err)
		}
		l.writeSoon()
		sent++
	}
	l.out.finish()
	written := make(chan struct{})
	go func() { l.write(); close(written) }()
	r := wire.NewReader(theirs)
	for i := range sent {
		m, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if want := append([]byte{1}, body(i)...); !bytes.Equal(m.Body, want) {
			t.Fatalf("message %d of %d isn't what was sent", i, sent)
		}
	}
	<-written
}
