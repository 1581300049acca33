package consumer

import (
	"slices"

	"github.com/heraldmq/herald/topics"
)

// entry is a message that was delivered and not yet acknowledged.
type entry struct {
	seq      topics.Sequence
	number   uint64       // of its first delivery
	at       topics.Nanos // last delivery
	due      topics.Nanos // when it is delivered again; never when noDue
	attempts uint32
	gone     bool // acknowledged, still in its place
	ready    bool // live copy: waits in the queue of redeliveries
}

// noDue is the due time of what is never delivered again by itself.
const noDue = topics.Nanos(1<<63 - 1)

// windowKeep is how many entries an empty window keeps room for.
const windowKeep = 1024

// window holds the pending messages of a consumer in the order of their
// sequences, which is also that of their first deliveries. Acknowledged ones stay
// in their place until they are at the front or make up most of the window, so
// that a delivery is an append, an acknowledgement a lookup, and both the ack
// floor and the oldest pending message are at hand.
//
// Invariant: entries[head] is not gone, or head == len(entries).
type window struct {
	entries     []entry
	head        int
	count       int // entries that are not gone
	redelivered int // of those, with more than one attempt
}

// first returns the oldest pending message.
func (w *window) first() *entry {
	if w == nil || w.count == 0 {
		return nil
	}
	return &w.entries[w.head]
}

// find returns the pending message with a sequence. The pointer is valid until
// the window changes.
func (w *window) find(seq topics.Sequence) *entry {
	i := w.search(seq)
	if i < 0 || w.entries[i].seq != seq || w.entries[i].gone {
		return nil
	}
	return &w.entries[i]
}

// search returns the place of the first entry at or after seq, or -1.
func (w *window) search(seq topics.Sequence) int {
	if w == nil || w.head == len(w.entries) {
		return -1
	}
	live := w.entries[w.head:]
	if seq <= live[0].seq {
		return w.head
	}
	if seq > live[len(live)-1].seq {
		return -1
	}
	// Sequences grow by at least one per entry, so seq is at most that far away,
	// and exactly there in a window without gaps.
	most := len(live) - 1
	if d := seq - live[0].seq; d < topics.Sequence(most) {
		most = int(d)
	}
	if live[most].seq == seq {
		return w.head + most
	}
	i, _ := slices.BinarySearchFunc(live[:most+1], seq, func(e entry, s topics.Sequence) int {
		switch {
		case e.seq < s:
			return -1
		case e.seq > s:
			return 1
		}
		return 0
	})
	return w.head + i
}

// add puts a message that is not pending yet into the window.
func (w *window) add(e entry) {
	w.count++
	if n := len(w.entries); n == 0 || w.entries[n-1].seq < e.seq {
		w.entries = append(w.entries, e)
		return
	}
	// Only records from a damaged or foreign source get here; keep the order.
	i := w.search(e.seq)
	if i >= 0 && w.entries[i].seq == e.seq {
		w.entries[i] = e // it was gone: the caller looked
		return
	}
	w.entries = slices.Insert(w.entries, i, e)
}

// remove takes a message that find returned out of the window.
func (w *window) remove(e *entry) {
	e.gone = true
	w.count--
	if e.attempts > 1 {
		w.redelivered--
	}
	if w.count == 0 {
		w.clear()
		return
	}
	for w.entries[w.head].gone {
		w.head++
	}
	if len(w.entries) > 2*w.count+64 {
		w.squeeze()
	}
}

// squeeze drops what is gone.
func (w *window) squeeze() {
	n := 0
	for i := w.head; i < len(w.entries); i++ {
		if !w.entries[i].gone {
			w.entries[n] = w.entries[i]
			n++
		}
	}
	w.entries, w.head = w.entries[:n], 0
}

func (w *window) clear() {
	if cap(w.entries) > windowKeep {
		w.entries = nil
	}
	*w = window{entries: w.entries[:0]}
}

// each calls f with the pending messages in order until it returns false. f must
// not change the window.
func (w *window) each(f func(e *entry) bool) {
	if w == nil {
		return
	}
	for i := w.head; i < len(w.entries); i++ {
		if !w.entries[i].gone && !f(&w.entries[i]) {
			return
		}
	}
}

func (w *window) clone() *window {
	if w == nil || w.count == 0 {
		return nil
	}
	out := &window{entries: make([]entry, 0, w.count), count: w.count, redelivered: w.redelivered}
	w.each(func(e *entry) bool {
		out.entries = append(out.entries, *e)
		return true
	})
	return out
}
