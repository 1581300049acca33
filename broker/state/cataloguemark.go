package state

import (
	"fmt"

	"github.com/heraldmq/herald/replication"
	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/catalogue"
)

var _ replication.Marked = (*catalogueMachine)(nil)

// Marker implements replication.Marked. All markers of the catalogue are full ones.
func (m *catalogueMachine) Marker(bool) []byte {
	b, err := (&catalogue.Command{Op: catalogue.OpMark}).Encode()
	if err != nil {
		m.fatal(fmt.Errorf("encode a marker: %w", err)) // plain data always encodes
	}
	return catalogue.AppendEntry(nil, 0, [][]byte{b})
}

// OnMark implements replication.Marked.
func (m *catalogueMachine) OnMark(f func(replication.Mark)) { m.marked.Store(&f) }

// mark says what this replica holds. Summing it up takes a while, so it is done beside
// the application of commands; when that is slower than markers come, some are left out.
func (m *catalogueMachine) mark(i topics.Index) {
	tell := m.marked.Load()
	if tell == nil || !m.marking.CompareAndSwap(false, true) {
		return
	}
	summary := m.filling().Summary()
	if !m.spawn(func() {
		defer m.marking.Store(false)
		digest, err := summary.Digest()
		if err != nil {
			m.fatal(fmt.Errorf("sum up the catalogue: %w", err))
			return
		}
		(*tell)(replication.Mark{Index: i, Digest: digest, Known: true, Full: true})
	}) {
		m.marking.Store(false)
	}
}
