package wal

import (
	"errors"
	"fmt"

	"github.com/heraldmq/herald/replication/disk"
)

// What is told of damage. The groups share the log, so a place that can't be read may
// have held entries of any of them. With Options.Salvage the log opens nevertheless,
// and finds out whose they were:
//
//   - where exactly one record is missing and its header makes sense, it is that
//     group's;
//   - a group whose indexes don't go on from one side of the damage to the other is hit;
//   - where neither helps, all groups are.
//
// A group that is hit must not be used: Damage says so until it is dropped, or its log
// began anew behind the damage. No segment is recycled meanwhile.
type salvage struct {
	met bool             // damage was met; indexes are compared from there on
	hit map[uint32]error // by group
	all error            // groups whose beginning isn't seen are hit too
}

// Damage returns why a group's log can't be used; nil if it can.
func (l *Log) Damage(group uint32) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.salvage.hit[group]
}

// mark notes that a group is hit.
func (s *salvage) mark(group uint32, err error) {
	if s.hit == nil {
		s.hit = map[uint32]error{}
	}
	if s.hit[group] == nil {
		s.hit[group] = err
	}
}

// skip moves l.end behind damage, if there is some where the records end, and notes
// whom it hit. batch is the one that was being read, writing the one that was being
// written where the records end; limit is where the segment ends,
// for the last one 0.
func (l *Log) skip(seg *segment, win *window, batch, writing uint64, next *header, acked position) (uint64, bool, error) {
	from := int64(l.end.offset)
	limit, chain := seg.size, acked.chain
	var damage *disk.CorruptError
	if next != nil {
		limit, chain = int64(next.prevEnd), next.prevChain
		if from >= limit {
			return batch, false, nil
		}
		damage = &disk.CorruptError{File: seg.name, Offset: from, Reason: "no valid record"}
	} else if err := l.judge(seg, win, writing, acked); err == nil {
		return batch, false, nil
	} else if !errors.As(err, &damage) {
		return batch, false, err
	}
	to := int64(0)
	for off := from + 8; off+recordHeader <= limit; off += 8 {
		r, _, err := win.record(off, seg.seed)
		if err != nil && !errors.Is(err, errNoRecord) {
			return batch, false, fmt.Errorf("read segment %d: %w", seg.head.number, err)
		}
		if err == nil && r.batch >= batch {
			to, chain = off, r.prev
			break
		}
	}
	switch {
	case to != 0:
	case next != nil:
		to = limit
	case acked.segment == seg.head.number && int64(acked.offset) > from:
		to, batch = int64(acked.offset), max(batch, acked.batch)
	default:
		return batch, false, damage // it can't be passed by
	}
	l.blame(win, from, to, chain, damage)
	l.end.offset, l.end.chain = uint64(to), chain
	return batch, true, nil
}

// blame notes whose records are missing between two places. chain is what the record
// behind them says of the one before it.
func (l *Log) blame(win *window, from, to int64, chain uint32, damage error) {
	s := &l.salvage
	s.met = true
	l.opt.Log.Error("the write-ahead log is damaged", "error", damage)
	if b, err := win.at(from, recordHeader); err == nil {
		if r, err := parseHeader(b, win.size-from); err == nil && (r.crc == chain || from+r.size() == to) && l.follows(&r) {
			s.mark(r.group, damage)
			return
		}
	}
	s.all = damage
	for id := range l.groups {
		s.mark(id, damage)
	}
}

// follows tells whether a record can be the next of its group.
func (l *Log) follows(r *record) bool {
	g := l.groups[r.group]
	if g == nil {
		return false
	}
	last := g.lastLocked()
	if r.kind == kindTruncate {
		return r.index <= last+1
	}
	return r.index == last+1 || r.flags&flagRestart != 0
}

// compare looks at a record behind damage, before it is put into the index.
func (s *salvage) compare(l *Log, r *record, at place) {
	anew := r.kind == kindTruncate && r.index == 1 || r.kind == kindEntry && r.flags&flagRestart != 0
	g := l.groups[r.group]
	damage := &disk.CorruptError{File: at.segment.name, Offset: int64(at.offset), Reason: fmt.Sprintf("entry %d of group %d does not go on from where the damage begins", r.index, r.group)}
	switch {
	case anew:
		delete(s.hit, r.group)
	case g == nil && s.all != nil && r.index > 1:
		s.mark(r.group, s.all)
	case g == nil || g.refs.len() == 0:
	case r.kind == kindEntry && r.index != g.lastLocked()+1, r.kind == kindTruncate && r.index > g.lastLocked()+1:
		s.mark(r.group, damage)
	}
}

// forget is called when a group has been dropped: what was damaged is no more needed.
func (l *Log) forget(group uint32) {
	l.mu.Lock()
	delete(l.salvage.hit, group)
	l.mu.Unlock()
	l.retire()
}
