package topics

import (
	"encoding/binary"
	"fmt"
)

// Guard is the body of a guard record: whose records follow it, and which they are of
// all that the producer has ever sent. They are applied, all of them, exactly when they
// are the next: the number behind the last one in the same epoch, or 1 in a higher epoch
// that was declared. What was applied before is answered as done and changes nothing.
type Guard struct {
	Producer  uint64
	Partition uint32 // of the producer; each counts for itself
	Epoch     uint64
	Seq       uint64 // dense, from 1 in each epoch
	Records   uint32 // how many records it guards
}

// BurialProducer is set in the ids of producers that send dead letters; operators have none
// of it. With OutboxBit it is a consumer (LetterProducer). Without, it is a single letter of
// a version before: such a one is declared no more, and forgotten in time.
const BurialProducer = uint64(1) << 62

// OutboxBit is set in the number of a producer that is an outbox: what each of its guards
// guards is for one topic, and how far it has come is kept by that topic, and moves with
// it, instead of by the group. A higher epoch needs no declaration and begins with 1.
const OutboxBit = uint64(1) << 63

// Outbox tells whether the producer is one.
func (g *Guard) Outbox() bool { return g.Producer&OutboxBit != 0 }

// GuardSize is how many bytes AppendGuard adds.
const GuardSize = 8 + 4 + 8 + 8 + 4

// AppendGuard appends the body of a guard record.
func AppendGuard(dst []byte, g *Guard) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, g.Producer)
	dst = binary.LittleEndian.AppendUint32(dst, g.Partition)
	dst = binary.LittleEndian.AppendUint64(dst, g.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, g.Seq)
	return binary.LittleEndian.AppendUint32(dst, g.Records)
}

// ParseGuard reads what AppendGuard wrote.
func ParseGuard(body []byte) (Guard, error) {
	if len(body) < GuardSize {
		return Guard{}, fmt.Errorf("%w: guard record of %d bytes", ErrBadEntry, len(body))
	}
	return Guard{
		Producer:  binary.LittleEndian.Uint64(body),
		Partition: binary.LittleEndian.Uint32(body[8:]),
		Epoch:     binary.LittleEndian.Uint64(body[12:]),
		Seq:       binary.LittleEndian.Uint64(body[20:]),
		Records:   binary.LittleEndian.Uint32(body[28:]),
	}, nil
}

// Place is how far a producer's partition has come: the last guarded records that were
// applied. Epoch 0: the producer is not known.
type Place struct{ Epoch, Seq uint64 }

// Verdict says what becomes of guarded records.
type Verdict uint8

// The verdicts.
const (
	GuardNext    Verdict = iota // they are the next: they are applied
	GuardDone                   // they were applied before
	GuardRefused                // they are neither, or something among them is refused
)

// Judge tells what becomes of a guard at a place.
func (p Place) Judge(g *Guard) Verdict {
	if g.Outbox() && g.Epoch > p.Epoch {
		p = Place{Epoch: g.Epoch}
	}
	switch {
	case p.Epoch == 0 || g.Epoch != p.Epoch || g.Seq == 0 || g.Seq > p.Seq+1:
		return GuardRefused
	case g.Seq <= p.Seq:
		return GuardDone
	}
	return GuardNext
}

// GuardResult is what applying guarded records gave. With GuardRefused, Fault says why
// one of them is refused; without it they are not the next, and At says behind what they
// would have been.
type GuardResult struct {
	Verdict Verdict
	At      Place // after it
	Fault   *Fault
}
