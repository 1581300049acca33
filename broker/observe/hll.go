package observe

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// sketchBits: 2^10 registers, a standard error of 3.2 %.
const (
	sketchBits  = 10
	sketchSize  = 1 << sketchBits
	sketchWords = sketchSize / 4
)

// sketch estimates how many different things were added (HyperLogLog, Flajolet et al.
// 2007, with linear counting while there are few). Any goroutine may add.
type sketch struct {
	words [sketchWords]atomic.Uint32 // four registers each
}

func (s *sketch) add(b []byte) { s.addHash(xxhash.Sum64(b)) }

func (s *sketch) addHash(h uint64) {
	at := h >> (64 - sketchBits)
	rank := uint32(bits.LeadingZeros64(h<<sketchBits|1<<(sketchBits-1))) + 1
	w, shift := &s.words[at/4], (at%4)*8
	for {
		old := w.Load()
		if old>>shift&0xff >= rank {
			return
		}
		if w.CompareAndSwap(old, old&^(0xff<<shift)|rank<<shift) {
			return
		}
	}
}

// registers returns a copy, for Merge.
func (s *sketch) registers() []byte {
	out := make([]byte, sketchSize)
	for i := range s.words {
		w := s.words[i].Load()
		for j := range 4 {
			out[4*i+j] = byte(w >> (8 * j))
		}
	}
	return out
}

// mergeRegisters puts the greater of each register into a copy of the longer list.
func mergeRegisters(a, b []byte) []byte {
	if len(a) != sketchSize {
		return b
	}
	if len(b) != sketchSize {
		return a
	}
	out := make([]byte, sketchSize)
	for i := range out {
		out[i] = max(a[i], b[i])
	}
	return out
}

// estimate returns how many different things the registers have seen.
func estimate(registers []byte) int64 {
	if len(registers) != sketchSize {
		return 0
	}
	sum, zeros := 0.0, 0
	for _, r := range registers {
		sum += math.Ldexp(1, -int(r))
		if r == 0 {
			zeros++
		}
	}
	const m = float64(sketchSize)
	e := 0.7213 / (1 + 1.079/m) * m * m / sum
	if e <= 2.5*m && zeros > 0 {
		e = m * math.Log(m/float64(zeros))
	}
	return int64(e + 0.5)
}
