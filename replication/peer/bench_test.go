package peer_test

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/peer/peertest"
)

// yes answers every RPC like a follower that has everything.
func yes(consumer <-chan raft.RPC, done <-chan struct{}) {
	for {
		select {
		case rpc := <-consumer:
			r := rpc.Command.(*raft.AppendEntriesRequest)
			rpc.Respond(&raft.AppendEntriesResponse{Term: r.Term, Success: true, LastLog: r.PrevLogEntry + uint64(len(r.Entries))}, nil)
		case <-done:
			return
		}
	}
}

// BenchmarkAppend sends one entry in each AppendEntries through a pipeline and waits
// for all answers: this transport and raft's own, over the loopback.
func BenchmarkAppend(b *testing.B) {
	type pair struct {
		from raft.Transport
		to   raft.Transport
	}
	kinds := map[string]func(b *testing.B) pair{
		"own": func(b *testing.B) pair {
			c := peertest.NewUnopened(b, "a", "b")
			for _, name := range []string{"a", "b"} {
				o := c.Options(name)
				o.Wrap = nil
				c.Open(name, o)
			}
			c.Start()
			return pair{c.Net("a").Transport(1, "a1"), c.Net("b").Transport(1, "b")}
		},
		"raft": func(b *testing.B) pair {
			var p pair
			for _, t := range []*raft.Transport{&p.from, &p.to} {
				n, err := raft.NewTCPTransport("127.0.0.1:0", nil, 3, 10*time.Second, io.Discard)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = n.Close() })
				*t = n
			}
			return p
		},
	}
	for _, size := range []int{128, 4 << 10, 64 << 10, 256 << 10} {
		for _, kind := range []string{"raft", "own"} {
			b.Run(fmt.Sprintf("%d/%s", size, kind), func(b *testing.B) {
				p := kinds[kind](b)
				done := make(chan struct{})
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					yes(p.to.Consumer(), done)
				}()
				pipe, err := p.from.AppendEntriesPipeline("b", p.to.LocalAddr())
				if err != nil {
					b.Fatal(err)
				}
				data := bytes.Repeat([]byte("x"), size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				finished := make(chan struct{})
				go func() {
					defer close(finished)
					for range b.N {
						<-pipe.Consumer()
					}
				}()
				for i := range b.N {
					req := &raft.AppendEntriesRequest{
						Term: 1, PrevLogEntry: uint64(i), PrevLogTerm: 1, LeaderCommitIndex: uint64(i),
						Entries: []*raft.Log{{Index: uint64(i + 1), Term: 1, Data: data}},
					}
					if _, err := pipe.AppendEntries(req, new(raft.AppendEntriesResponse)); err != nil {
						b.Fatal(err)
					}
				}
				<-finished
				b.StopTimer()
				_ = pipe.Close()
				close(done)
				<-answered
			})
		}
	}
}
