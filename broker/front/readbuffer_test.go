package front

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// TestReadBuffer reads operations of all sizes, cut anywhere, and keeps
// referring to some of them: each must come whole, and stay as it was for as
// long as it is referred to.
func TestReadBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pool chunkPool
		var r readBuffer
		r.init(&pool)
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(5, 300), rapid.IntRange(5, 20_000), rapid.IntRange(60_000, 300_000)), 1, 40).Draw(t, "sizes")
		var stream []byte
		for i, n := range sizes {
			stream = binary.BigEndian.AppendUint32(stream, uint32(n))
			stream = append(stream, bytes.Repeat([]byte{byte(i)}, n-4)...)
		}
		type held struct {
			piece
			i int
		}
		var refs []held
		check := func(h held) {
			if n := int(binary.BigEndian.Uint32(h.b)); n != len(h.b) || bytes.Count(h.b[4:], []byte{byte(h.i)}) != n-4 {
				t.Fatalf("operation %d changed while it was referred to", h.i)
			}
			h.c.release()
		}
		quiet := rapid.IntRange(0, 3).Draw(t, "quiet")
		for seen := 0; seen < len(sizes); {
			if rapid.IntRange(0, 3).Draw(t, "park") < quiet {
				r.park()
			}
			space := r.space()
			if len(space) == 0 {
				t.Fatal("no room to read to")
			}
			n := min(len(space), len(stream))
			if rapid.Bool().Draw(t, "part") {
				n = rapid.IntRange(1, n).Draw(t, "read")
			}
			copy(space[:n], stream)
			stream, r.to = stream[n:], r.to+n
			if r.short() {
				continue
			}
			rest, need := r.bytes(), 0
			for len(rest) > 0 {
				if len(rest) < 4 {
					break
				}
				n := int(binary.BigEndian.Uint32(rest))
				if len(rest) < n {
					need = n
					break
				}
				h := held{piece{r.c, rest[:n]}, seen}
				h.c.refs.Add(1)
				if rapid.Bool().Draw(t, "hold") {
					refs = append(refs, h)
				} else {
					check(h)
				}
				rest = rest[n:]
				seen++
			}
			r.handled(len(rest), need)
			if len(refs) > 0 && rapid.Bool().Draw(t, "release") {
				check(refs[0])
				refs = refs[1:]
			}
		}
		for _, h := range refs {
			check(h)
		}
		r.park()
		if r.c != nil {
			t.Fatal("a buffer is kept though all is handled")
		}
	})
}

// TestQuietConnectionHoldsNoBuffer: what was read into goes back to the pool
// before the connection waits.
func TestQuietConnectionHoldsNoBuffer(t *testing.T) {
	s := startServer(t, Options{})
	c := connect(t, s, "")
	if _, ok := newReader(c.Conn).(connReader); ok {
		t.Skip("SKIPPED: sockets of this system can't be waited for without a buffer")
	}
	c.send("PUB a %d\r\n%s\r\n", 200_000, bytes.Repeat([]byte("x"), 200_000))
	c.sync()
	eventually(t, "the buffers to be given back", func() bool {
		s.chunks.mu.Lock()
		defer s.chunks.mu.Unlock()
		for class, list := range s.chunks.free {
			if chunkSizes[class].size >= 200_000 && len(list) > 0 {
				return true
			}
		}
		return false
	})
}
