package state

import (
	"context"
	"fmt"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
)

// Flags of a marker.
const (
	markFull = 1 << iota // look at everything, not only at what changed
	markAnew             // the digest begins anew
)

var _ replication.Marked = (*dataMachine)(nil)

// Marker implements replication.Marked. A marker has no time of its own: nothing in
// it depends on one.
func (m *dataMachine) Marker(full bool) []byte {
	flags := byte(0)
	if full {
		flags |= markFull
	}
	if m.unmarked.Load() {
		flags |= markAnew
	}
	entry := topics.AppendEntryHeader(nil, topics.Nanos(m.last.Load()))
	entry = topics.AppendRecord(entry, topics.RecordMarker, []byte{flags})
	topics.SetRecords(entry, 1)
	return entry
}

// OnMark implements replication.Marked.
func (m *dataMachine) OnMark(f func(replication.Mark)) { m.marked.Store(&f) }

// applyMarker says what this replica holds.
func (m *dataMachine) applyMarker(body []byte) error {
	if len(body) < 1 {
		return fmt.Errorf("%w: body of a marker", topics.ErrBadEntry)
	}
	mark := replication.Mark{Index: m.index, Full: body[0]&markFull != 0}
	var err error
	if mark.Digest, mark.Known, err = m.data.Mark(mark.Full, body[0]&markAnew != 0); err != nil {
		return err
	}
	m.unmarked.Store(!mark.Known)
	if tell := m.marked.Load(); tell != nil {
		(*tell)(mark)
	}
	return nil
}

var _ replication.Scrubber = (*dataMachine)(nil)

// Scrub implements replication.Scrubber.
func (m *dataMachine) Scrub(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error {
	return m.data.Scrub(ctx, pace, found)
}
