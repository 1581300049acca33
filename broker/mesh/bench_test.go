package mesh

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// BenchmarkPublishHereSubscribeThere is one publisher on A and one subscriber on
// B, 128 byte messages, raw sockets; with the same on one node beside it.
func BenchmarkPublishHereSubscribeThere(b *testing.B) {
	for _, v := range []struct {
		name string
		at   int
	}{{"other", 1}, {"same", 0}} {
		b.Run(v.name, func(b *testing.B) {
			c := newCluster(b, 2, nil)
			sub := c.raw(v.at)
			sub.send("SUB bench 1\r\n")
			sub.sync()
			c.knows(0, "bench", true)
			pub, err := net.Dial("tcp", c.srv[0].Addr().String())
			must(b, err)
			defer pub.Close()
			_, err = bufio.NewReader(pub).ReadString('\n')
			must(b, err)
			_, err = io.WriteString(pub, "CONNECT {\"verbose\":false}\r\n")
			must(b, err)
			one := append([]byte("PUB bench 128\r\n"), bytes.Repeat([]byte("x"), 128)...)
			one = append(one, "\r\n"...)
			many := bytes.Repeat(one, 400)
			want := int64(b.N) * int64(len(one)+2) // MSG bench 1 128
			b.ResetTimer()
			go func() {
				for left := b.N; left > 0; left -= 400 {
					if _, err := pub.Write(many[:min(left, 400)*len(one)]); err != nil {
						return
					}
				}
			}()
			_ = sub.SetReadDeadline(time.Now().Add(time.Minute))
			if n, err := io.CopyN(io.Discard, sub.r, want); err != nil {
				b.Fatalf("%d of %d bytes: %v", n, want, err)
			}
			b.SetBytes(128)
		})
	}
}

// BenchmarkRoundTrip is one request at a time from A to a responder on B.
func BenchmarkRoundTrip(b *testing.B) {
	c := newCluster(b, 2, nil)
	srv, cl := c.raw(1), c.raw(0)
	srv.send("SUB svc 1\r\n")
	srv.sync()
	cl.send("SUB in.* 1\r\n")
	cl.sync()
	c.knows(0, "svc", true)
	c.knows(1, "in.1", true)
	go func() {
		for {
			if _, err := srv.r.ReadString('\n'); err != nil {
				return
			}
			if _, err := srv.r.Discard(3); err != nil {
				return
			}
			if _, err := io.WriteString(srv, "PUB in.1 1\r\ny\r\n"); err != nil {
				return
			}
		}
	}()
	for b.Loop() {
		cl.send("PUB svc in.1 1\r\nx\r\n")
		_, err := cl.r.ReadString('\n')
		must(b, err)
		_, err = cl.r.Discard(3)
		must(b, err)
	}
}
