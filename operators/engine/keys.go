package engine

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/heraldmq/herald/operators/stream"
	"github.com/heraldmq/herald/topics/value"
)

// KeyGroups is how many groups keys are divided into: what moves when an operator is
// spread over more or fewer instances. It has many divisors, and never changes.
const KeyGroups = 120

// KeyGroup returns the group of a key.
func KeyGroup(key []byte) uint16 {
	if len(key) == 0 {
		return 0
	}
	return uint16(xxhash.Sum64(key) % KeyGroups)
}

// The keys of an instance's state:
//
//	'm' name                                          the engine's own
//	's' group(2) node(2) key name-length(1) name sub   of nodes
//	't' kind(1) time(8) node(2) key name               timers, nothing as value
//	'o' …                                              what waits to be sent, see outbox.go
//
// A record's key is prefix-free (value.AppendKey), so it needs no length. In a timer's
// key its length is at the end, so that timers sort by time, node and key. Package state
// looks at where the node is, to count by step.
const (
	spaceMeta   = 'm'
	spaceOutbox = 'o'
	spaceState  = 's'
	spaceTimer  = 't'
)

var (
	metaClock   = []byte{spaceMeta, 'c'}
	metaTracker = []byte{spaceMeta, 't'}
	metaInputs  = []byte{spaceMeta, 'i'}
	metaHalt    = []byte{spaceMeta, 'x'} // number of a layout that takes over
	metaCounts  = []byte{spaceMeta, 'n'} // followed by node(2) and the counter's name

	// Of recovery upstream and amnesia; metaHollow is never in a step.
	metaHollow   = []byte{spaceMeta, 'h'}
	metaPlaces   = []byte{spaceMeta, 'p'}
	metaRollback = []byte{spaceMeta, 'r'}
)

func appendStateKey(dst []byte, node uint16, key []byte, name string, sub []byte) []byte {
	dst = append(dst, spaceState)
	dst = binary.BigEndian.AppendUint16(dst, KeyGroup(key))
	dst = binary.BigEndian.AppendUint16(dst, node)
	dst = append(dst, key...)
	dst = append(dst, byte(len(name)))
	dst = append(dst, name...)
	return append(dst, sub...)
}

// StateKey is a key of a node's state, taken apart.
type StateKey struct {
	Node uint16
	Key  []byte // value.AppendKey's; empty where the node works by none
	Name string
	Sub  []byte
}

// ParseStateKey is appendStateKey's way back; false: it is another key. What it returns is
// part of b.
func ParseStateKey(b []byte) (k StateKey, ok bool) {
	if len(b) < 6 || b[0] != spaceState {
		return k, false
	}
	k.Node = binary.BigEndian.Uint16(b[3:])
	// Without a key the name's length is there, which may look like a key's tag: the group
	// says which of the two it is.
	for _, keyed := range []bool{true, false} {
		rest := b[5:]
		if keyed {
			_, after, err := value.FromKey(rest)
			if err != nil {
				continue
			}
			rest = after
		}
		k.Key = b[5 : len(b)-len(rest)]
		if KeyGroup(k.Key) != binary.BigEndian.Uint16(b[1:]) || len(rest) == 0 || int(rest[0]) >= len(rest) {
			continue
		}
		k.Name, k.Sub = string(rest[1:1+rest[0]]), rest[1+rest[0]:]
		return k, true
	}
	return k, false
}

func appendTimerKey(dst []byte, node uint16, key []byte, t stream.Timer) []byte {
	dst = appendTimerTime(dst, t.Kind, t.At)
	dst = binary.BigEndian.AppendUint16(dst, node)
	dst = append(dst, key...)
	dst = append(dst, t.Name...)
	return binary.BigEndian.AppendUint16(dst, uint16(len(t.Name)))
}

func appendTimerTime(dst []byte, kind stream.TimerKind, at stream.Time) []byte {
	dst = append(dst, spaceTimer, byte(kind))
	return binary.BigEndian.AppendUint64(dst, uint64(at)^1<<63)
}

// timerTime returns the time of a timer's key.
func timerTime(key []byte) stream.Time {
	return stream.Time(binary.BigEndian.Uint64(key[2:]) ^ 1<<63)
}

// late and early convert the time of a node's timer to that of the inputs and back: by
// the node's lag, for event time.
func late(t stream.Timer, lag time.Duration) stream.Time {
	if t.Kind != stream.EventTime || lag == 0 {
		return t.At
	}
	if t.At > stream.TimeMax-stream.Time(lag) {
		return stream.TimeMax
	}
	return t.At + stream.Time(lag)
}

func early(t stream.Timer, lag time.Duration) stream.Time {
	if t.Kind != stream.EventTime {
		return t.At
	}
	return behind(t.At, lag)
}

// behind is a time less a lag, without running over the end of time.
func behind(at stream.Time, lag time.Duration) stream.Time {
	if at < stream.TimeMin+stream.Time(lag) {
		return stream.TimeMin
	}
	return at - stream.Time(lag)
}

const timerHead = 12 // up to and with the node

// parseTimerKey is appendTimerKey's way back.
func parseTimerKey(b []byte) (node uint16, key []byte, t stream.Timer, ok bool) {
	if len(b) < timerHead+2 {
		return 0, nil, t, false
	}
	n := int(binary.BigEndian.Uint16(b[len(b)-2:]))
	rest := b[timerHead : len(b)-2]
	if n > len(rest) {
		return 0, nil, t, false
	}
	t = stream.Timer{Kind: stream.TimerKind(b[1]), At: stream.Time(binary.BigEndian.Uint64(b[2:]) ^ 1<<63), Name: string(rest[len(rest)-n:])}
	return binary.BigEndian.Uint16(b[10:]), rest[: len(rest)-n : len(rest)-n], t, true
}
