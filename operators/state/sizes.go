package state

import (
	"encoding/binary"
	"slices"
)

// StepSize is how much of a state is of one step of the graph, by the place of its state; 0:
// of no step, but the engine's own.
type StepSize struct {
	Step  uint16
	Keys  int64
	Bytes int64 // of keys and values
}

// sizes are those of all steps, by step.
type sizes []StepSize

// stepOf is whose a key is, by the layout of package engine: keyed state has its step behind
// the key's group, a timer behind its kind and time.
func stepOf(key []byte) uint16 {
	const state, timer = 3, 10 // where the step is
	switch {
	case len(key) >= state+2 && key[0] == 's':
		return binary.BigEndian.Uint16(key[state:])
	case len(key) >= timer+2 && key[0] == 't':
		return binary.BigEndian.Uint16(key[timer:])
	}
	return 0
}

// count takes in what has come and gone of a step. It is called for each change of a state.
func (s *sizes) count(step uint16, keys, bytes int64) {
	all := *s
	low, high := 0, len(all)
	for low < high {
		if mid := (low + high) / 2; all[mid].Step < step {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(all) || all[low].Step != step {
		all = slices.Insert(all, low, StepSize{Step: step})
		*s = all
	}
	all[low].Keys += keys
	all[low].Bytes += bytes
}

// more and less take in a pair that has come, and one that has gone; other takes in another
// value of a key.
func (s *sizes) more(key []byte, valueBytes int) {
	s.count(stepOf(key), 1, int64(len(key)+valueBytes))
}

func (s *sizes) less(key []byte, valueBytes int) {
	s.count(stepOf(key), -1, -int64(len(key)+valueBytes))
}

func (s *sizes) other(key []byte, was, is int) { s.count(stepOf(key), 0, int64(is-was)) }

// there are the steps that have something.
func (s sizes) there() []StepSize {
	var all []StepSize
	for _, e := range s {
		if e.Keys > 0 {
			all = append(all, e)
		}
	}
	return all
}

const sizeBytes = 18 // of a step's, as they are kept

func (s sizes) append(dst []byte) []byte {
	for _, e := range s.there() {
		dst = binary.LittleEndian.AppendUint16(dst, e.Step)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Keys))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Bytes))
	}
	return dst
}

// parseSizes is append's way back; false: they aren't whole.
func parseSizes(b []byte) (s sizes, ok bool) {
	for ; len(b) >= sizeBytes; b = b[sizeBytes:] {
		s = append(s, StepSize{binary.LittleEndian.Uint16(b), int64(binary.LittleEndian.Uint64(b[2:])), int64(binary.LittleEndian.Uint64(b[10:]))})
	}
	return s, len(b) == 0
}
