package state

// Discard implements replication.Discarder: what applying an entry gave is used again
// when nobody waits for it, as on followers.
func (m *dataMachine) Discard(result any) {
	if r, ok := result.(*results); ok && r != nil {
		m.pool.put(r)
	}
}
