package wal

import (
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/raft"
)

var errRecycled = errors.New("the segment has been recycled")

// place is where a record is.
type place struct {
	segment *segment
	offset  uint32
	size    uint32
	crc     uint32
}

// count takes note that an entry is, or is no more, in the index.
func (p *place) count(n int) {
	p.segment.live += n
	p.segment.bytes += int64(n) * int64(p.size)
}

// entryOverhead is what an entry in memory costs besides its bytes.
const entryOverhead = 128

// Group is one group's part of the log: a raft.LogStore. Appends, and deletions at
// the end, must come one at a time (raft's main goroutine makes them); the rest,
// also deletions at the beginning, may be called by any number of goroutines.
//
// Gaps are allowed in one form: an entry that does not follow the last one begins
// the group's log anew (raft does that after it has installed a snapshot).
type Group struct {
	log *Log
	id  uint32

	// Guarded by log.mu.
	// Invariant: refs hold first, first+1, …; tail holds the last tail.len() of them.
	first uint64
	refs  deque[place]
	tail  deque[raft.Log] // in memory
	epoch uint64          // counts where the log was cut short or begun anew

	// While the log is read, see carry.go.
	moving *carried // carried entries whose end is still to come
	aside  []run    // before the last gap
}

var _ raft.LogStore = (*Group)(nil)

func (g *Group) lastLocked() uint64 {
	if g.refs.len() == 0 {
		return 0
	}
	return g.first + uint64(g.refs.len()) - 1
}

// FirstIndex returns the first index, 0 when there is none.
func (g *Group) FirstIndex() (uint64, error) {
	g.log.mu.RLock()
	defer g.log.mu.RUnlock()
	if g.refs.len() == 0 {
		return 0, nil
	}
	return g.first, nil
}

// LastIndex returns the last index, 0 when there is none.
func (g *Group) LastIndex() (uint64, error) {
	g.log.mu.RLock()
	defer g.log.mu.RUnlock()
	return g.lastLocked(), nil
}

// GetLog reads an entry. Its bytes are shared with every other reader and must
// not be changed. The error is raft.ErrLogNotFound for an index outside the log,
// and a *disk.CorruptError for damage.
func (g *Group) GetLog(index uint64, log *raft.Log) error { return g.get(index, log, place{}) }

// get is GetLog. The segment that the entry was in at `before` has been recycled.
func (g *Group) get(index uint64, log *raft.Log, before place) error {
	g.log.mu.RLock()
	last := g.lastLocked()
	if index < g.first || index > last || last == 0 {
		g.log.mu.RUnlock()
		return raft.ErrLogNotFound
	}
	if tailFirst := last + 1 - uint64(g.tail.len()); index >= tailFirst {
		*log = *g.tail.at(int(index - tailFirst))
		g.log.mu.RUnlock()
		return nil
	}
	at := *g.refs.at(int(index - g.first))
	g.log.mu.RUnlock()

	r, body, err := at.segment.read(at)
	if errors.Is(err, errRecycled) {
		if at == before {
			return raft.ErrLogNotFound // the log is closed
		}
		return g.get(index, log, at) // it was trimmed meanwhile, or carried forward
	}
	if err != nil {
		return err
	}
	if r.group != g.id || r.index != index || r.kind != kindEntry {
		return fmt.Errorf("read entry %d of group %d: found entry %d of group %d", index, g.id, r.index, r.group)
	}
	r.log(body, log)
	return nil
}

// Entry returns an entry's data if it is in memory, without copying it.
func (g *Group) Entry(index uint64) ([]byte, bool) {
	g.log.mu.RLock()
	defer g.log.mu.RUnlock()
	last := g.lastLocked()
	tailFirst := last + 1 - uint64(g.tail.len())
	if last == 0 || index < tailFirst || index > last {
		return nil, false
	}
	e := g.tail.at(int(index - tailFirst))
	return e.Data, e.Type == raft.LogCommand
}

// Release lets go of the memory of entries up to index; they stay on disk.
func (g *Group) Release(index uint64) {
	g.log.mu.Lock()
	defer g.log.mu.Unlock()
	last := g.lastLocked()
	for g.tail.len() > 0 && last+1-uint64(g.tail.len()) <= index {
		g.dropTailLocked()
	}
}

func (g *Group) dropTailLocked() {
	g.log.tailBytes -= tailCost(g.tail.at(0))
	g.tail.dropFront(1)
}

func tailCost(l *raft.Log) int64 { return int64(len(l.Data)+len(l.Extensions)) + entryOverhead }

// Back returns the smallest index from which on the log holds at most n bytes,
// last+1 when the last entry alone is bigger.
func (g *Group) Back(n int64) uint64 {
	g.log.mu.RLock()
	defer g.log.mu.RUnlock()
	i := g.refs.len()
	for i > 0 && int64(g.refs.at(i-1).size) <= n {
		i--
		n -= int64(g.refs.at(i).size)
	}
	return g.first + uint64(i)
}

// StoreLog stores one entry; see StoreLogs.
func (g *Group) StoreLog(log *raft.Log) error { return g.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries. They are durable when it returns nil, and visible
// not before. The log keeps the entries' bytes by reference. After any other
// error than a misuse the Log has failed: Options.Fatal has been called.
func (g *Group) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	g.log.mu.RLock()
	last := g.lastLocked()
	g.log.mu.RUnlock()
	restart := last != 0 && logs[0].Index > last+1
	if last != 0 && logs[0].Index <= last {
		return fmt.Errorf("append entry %d to group %d: its log ends at %d already", logs[0].Index, g.id, last)
	}
	for i, e := range logs {
		if e.Index != logs[0].Index+uint64(i) || e.Index == 0 {
			return fmt.Errorf("append entries %d to %d to group %d: entry %d at position %d",
				logs[0].Index, logs[0].Index+uint64(len(logs))-1, g.id, e.Index, i)
		}
		if recordSize(int64(len(e.Data)), int64(len(e.Extensions))) > math.MaxInt32 {
			return fmt.Errorf("append entry %d to group %d: %d bytes are more than a record can hold", e.Index, g.id, len(e.Data))
		}
	}
	return g.log.submit(&request{group: g, logs: logs, restart: restart})
}

// DeleteRange deletes entries at the beginning or at the end. At the end it is
// durable when it returns. At the beginning it isn't (after a crash the entries
// may be back), and segments without wanted entries are recycled.
func (g *Group) DeleteRange(from, to uint64) error {
	g.log.mu.Lock()
	last := g.lastLocked()
	if last == 0 || from > to || to < g.first || from > last {
		g.log.mu.Unlock()
		return nil
	}
	if to >= last {
		if from <= g.first {
			from = 1 // also what was trimmed before, which a restart may bring back
		}
		g.log.mu.Unlock()
		return g.log.submit(&request{group: g, truncate: from})
	}
	if from > g.first {
		g.log.mu.Unlock()
		return fmt.Errorf("delete entries %d to %d of group %d: its log is %d to %d, and only an end can be deleted", from, to, g.id, g.first, last)
	}
	g.trimLocked(to + 1)
	g.log.mu.Unlock()
	g.log.retire()
	return nil
}

// Drop deletes everything, durably: the group's log is as if it had never been.
func (g *Group) Drop() error {
	// Also when there is nothing: there may be, behind damage.
	if err := g.log.submit(&request{group: g, truncate: 1}); err != nil {
		return err
	}
	g.log.forget(g.id)
	return nil
}

// trimLocked forgets the entries before index.
func (g *Group) trimLocked(index uint64) {
	last := g.lastLocked()
	n := int(index - g.first)
	for i := range n {
		g.refs.at(i).count(-1)
	}
	for g.tail.len() > 0 && last+1-uint64(g.tail.len()) < index {
		g.dropTailLocked()
	}
	g.refs.dropFront(n)
	g.first = index
}

// truncateLocked forgets the entries from index on.
func (g *Group) truncateLocked(index uint64) {
	g.epoch++
	last := g.lastLocked()
	if last == 0 || index > last {
		return
	}
	index = max(index, g.first)
	for n := last - index + 1; n > 0 && g.tail.len() > 0; n-- {
		i := g.tail.len() - 1
		g.log.tailBytes -= tailCost(g.tail.at(i))
		g.tail.truncate(i)
	}
	keep := int(index - g.first)
	for i := keep; i < g.refs.len(); i++ {
		g.refs.at(i).count(-1)
	}
	g.refs.truncate(keep)
}

// pushLocked appends an entry that is durable. log is nil when its bytes are not
// in memory (recovery).
func (g *Group) pushLocked(at place, index uint64, log *raft.Log) {
	if g.refs.len() == 0 || index != g.lastLocked()+1 {
		g.truncateLocked(0)
		g.first = index
	}
	g.refs.push(at)
	at.count(1)
	if log == nil {
		return
	}
	g.tail.push(*log)
	g.log.tailBytes += tailCost(log)
}
