package replication

import (
	"github.com/hashicorp/raft"
)

// trailingMin is what raft is told to leave below a snapshot. What really stays
// is decided by bytes, in trimmer; it must be more than zero so that raft's trims
// never reach the last entry, by which trimmer knows them.
const trailingMin = 1

// catalogTrailing is how many entries of group 0 stay below its older snapshot.
const catalogTrailing = 64

// trimmer is a log store whose beginning is cut off only as far as nobody needs
// it: neither to restore from the older of the two snapshots, nor to replay what
// the machine's last but one flush lacks, nor (in bytes) for followers a little
// behind.
type trimmer struct {
	raft.LogStore
	group *Group
}

// DeleteRange implements raft.LogStore.
func (t *trimmer) DeleteRange(from, to uint64) error {
	last, err := t.LastIndex()
	if err != nil {
		return err
	}
	if to >= last {
		return t.LogStore.DeleteRange(from, to) // a diverging end
	}
	_, older, err := t.group.snapshots.Generations()
	if err != nil {
		return err
	}
	end := min(older, to) // the last entry that may go
	g := t.group
	switch {
	case g.complete() && last > catalogTrailing:
		end = min(end, last-catalogTrailing)
	case g.complete():
		return nil
	default:
		g.flushMu.Lock()
		end = min(end, g.flushed1)
		g.flushMu.Unlock()
		end = min(end, g.wal.Back(g.node.cfg.TrailingBytes)-1)
	}
	if end < from {
		return nil
	}
	return t.LogStore.DeleteRange(from, end)
}
