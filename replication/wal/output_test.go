package wal

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/heraldmq/herald/replication/disk"
)

// blocks is a file that holds what is written against what was written before.
type blocks struct {
	disk.File
	t       *testing.T
	data    []byte
	durable int // bytes that must not change any more
}

func (f *blocks) WriteAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if off&blockMask != 0 || end&blockMask != 0 && end != int64(len(f.data)) {
		f.t.Fatalf("%d bytes are written at %d: no whole blocks", len(p), off)
	}
	if same := min(int64(f.durable), end) - off; same > 0 && !bytes.Equal(f.data[off:off+same], p[:same]) {
		f.t.Fatalf("%d bytes at %d were durable, and are written as others", same, off)
	}
	copy(f.data[off:], p)
	return len(p), nil
}

func (f *blocks) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestOutputWritesWholeBlocksAndNeverWhatWasDurable also at the end of a segment that is no
// multiple of a block, and after a restart anywhere.
func TestOutputWritesWholeBlocksAndNeverWhatWasDurable(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f := &blocks{t: t, data: bytes.Repeat([]byte{0xEE}, 3*outputBytes+1000)}
			seg := &segment{file: f, size: int64(len(f.data))}
			var want []byte
			var o output
			o.begin(seg)
			for len(want) < len(f.data) {
				for range 1 + rnd.IntN(3) {
					n := 1 + rnd.IntN(1<<rnd.IntN(22))
					p := make([]byte, min(n, len(f.data)-len(want)))
					for i := range p {
						p[i] = byte(rnd.Uint32())
					}
					want = append(want, p...)
					o.append(p)
				}
				if err := o.flush(); err != nil {
					t.Fatal(err)
				}
				f.durable = len(want)
				if rnd.IntN(4) == 0 {
					o = output{}
					if err := o.resume(seg, int64(len(want))); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !bytes.Equal(f.data, want) {
				t.Fatal("the file holds something else than what was written")
			}
		})
	}
}
