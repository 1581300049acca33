package wal

import (
	"errors"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

// What stays behind. The groups share the log, and a segment is free only once nothing
// in it is wanted and it is the oldest. So a group that is seldom written to, whose
// entries are few and stay for ever, would keep all that busy ones write behind them.
//
// When less than half of the log is wanted, the wanted entries of the oldest segment are
// carried forward: written again at the end, with flagMoved, and then looked for there.
// A group's carried entries are always its first ones, up to the last in that segment,
// so that what is found at a restart is the carried ones and then the others. They are
// written in pieces, each a batch of its own, between the batches of others; they count
// once the last one, with flagMovedEnd, is durable, and only then is the old segment
// given up. If the group's log was cut short or begun anew meanwhile, the last one is
// written without that flag, and the pieces are waste. So it is after a crash.
//
// Each byte that is written again makes room for at least one that isn't wanted: the log
// is written at most twice.
const (
	carryFrom  = 5       // live segments from which on something is carried
	carryPiece = 1 << 20 // written at once
)

// carried is a group's first entries on their way to the end of the log.
type carried struct {
	epoch  uint64
	first  uint64
	places []place // new ones; guarded by Log.mu
}

// sparse returns the oldest segment if what is wanted of it should be carried.
func (l *Log) sparse() *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) < carryFrom || len(l.salvage.hit) > 0 || l.full.Load() {
		return nil
	}
	var size, live int64
	for _, s := range l.segments[:len(l.segments)-1] {
		size += s.size
		live += s.bytes
	}
	if 2*live > size {
		return nil
	}
	return l.segments[0]
}

// carry carries what is wanted of the oldest segments. It is a goroutine, started by
// the keeper.
func (l *Log) carry() {
	defer l.carrying.Store(false)
	for {
		s := l.sparse()
		if s == nil {
			return
		}
		for _, g := range l.inside(s) {
			if err := g.carry(s); err != nil {
				var damage *disk.CorruptError
				if errors.As(err, &damage) {
					l.opt.Log.Error("entries can't be carried forward", "group", g.id, "error", err)
				}
				return // whoever needs the entry will see, or the log is closed
			}
		}
		l.retire()
		if l.sparse() == s {
			return // something was stored anew, or is on its way
		}
	}
}

// inside returns the groups with entries in a segment.
func (l *Log) inside(s *segment) []*Group {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var groups []*Group
	for _, g := range l.groups {
		if g.lastInLocked(s) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// lastInLocked returns the group's last entry in a segment, 0 when there is none.
func (g *Group) lastInLocked(s *segment) uint64 {
	for i := g.refs.len() - 1; i >= 0; i-- {
		if g.refs.at(i).segment == s {
			return g.first + uint64(i)
		}
	}
	return 0
}

// carry writes the group's entries up to the last one in a segment again.
func (g *Group) carry(s *segment) error {
	g.log.oneCarries.Lock() // pieces of two would not be told apart
	defer g.log.oneCarries.Unlock()
	g.log.mu.RLock()
	c := &carried{epoch: g.epoch, first: g.first}
	last := g.lastInLocked(s)
	g.log.mu.RUnlock()
	for next := c.first; next <= last; {
		var logs []*raft.Log
		for size := int64(0); next <= last && size < carryPiece; next++ {
			var e raft.Log
			if err := g.GetLog(next, &e); errors.Is(err, raft.ErrLogNotFound) {
				return nil // it is wanted no more
			} else if err != nil {
				return err
			}
			logs = append(logs, &e)
			size += recordSize(int64(len(e.Data)), int64(len(e.Extensions)))
		}
		r := &request{group: g, logs: logs, carried: c, begin: logs[0].Index == c.first, end: next > last}
		if err := g.log.submit(r); err != nil {
			return err
		}
	}
	return nil
}

// flags returns those of a carried record, the last of which is not the end if the
// group's log is another one by now.
func (r *request) flags(i int) uint8 {
	f := uint8(flagMoved)
	if r.begin && i == 0 {
		f |= flagRestart
	}
	if r.end && i == len(r.logs)-1 {
		l := r.group.log
		l.mu.RLock()
		defer l.mu.RUnlock()
		if r.group.epoch == r.carried.epoch {
			f |= flagMovedEnd
		}
	}
	return f
}

// arrivedLocked notes where a carried entry is; after the last one they are there.
func (g *Group) arrivedLocked(c *carried, at place, flags uint8) {
	c.places = append(c.places, at)
	if flags&flagMovedEnd == 0 {
		return
	}
	for i, at := range c.places {
		index := c.first + uint64(i)
		if index < g.first || g.refs.len() == 0 { // trimmed meanwhile
			continue
		}
		ref := g.refs.at(int(index - g.first))
		ref.count(-1)
		*ref = at
		ref.count(1)
	}
}

// run is entries without a gap, in a log that is being read.
type run struct {
	first uint64
	refs  deque[place]
}

func (r *run) last() uint64 { return r.first + uint64(r.refs.len()) - 1 }

// What is read at a start may have holes, since places aren't in the order of indexes:
// where entries were carried past others that were then cut off, and recycled. So the
// runs before the last one are kept aside, in the order of their indexes, until the end:
// then all that the log really has is in the last one, and the others are what was
// trimmed.

// restore appends an entry that was read.
func (g *Group) restore(at place, index uint64) {
	if n := g.refs.len(); n > 0 && index > g.lastLocked()+1 {
		g.aside = append(g.aside, run{g.first, g.refs})
		g.refs = deque[place]{}
	}
	g.pushLocked(at, index, nil)
}

// cut forgets the entries from index on, of a log that is being read.
func (g *Group) cut(index uint64) {
	g.truncateLocked(index)
	for n := len(g.aside); g.refs.len() == 0 && n > 0; n = len(g.aside) {
		g.first, g.refs = g.aside[n-1].first, g.aside[n-1].refs
		g.aside = g.aside[:n-1]
		g.truncateLocked(index)
	}
}

// restored ends the reading.
func (g *Group) restored() {
	for _, r := range g.aside {
		for i := range r.refs.len() {
			r.refs.at(i).count(-1)
		}
	}
	g.aside, g.moving = nil, nil
}

// restoreMoved takes a carried record that was read; the last one puts all of them into
// the index. The first ones may be missing: they were trimmed, and their segment was
// recycled.
func (l *Log) restoreMoved(g *Group, r *record, at place) {
	begins := r.flags&flagRestart != 0
	c := g.moving
	if begins || c == nil || r.index != c.first+uint64(len(c.places)) {
		if l.salvage.met && !begins {
			l.salvage.mark(g.id, &disk.CorruptError{File: at.segment.name, Offset: int64(at.offset), Reason: "carried entries before this one are missing"})
		}
		c = &carried{first: r.index}
		g.moving = c
	}
	c.places = append(c.places, at)
	if r.flags&flagMovedEnd != 0 {
		g.moving = nil
		g.prepend(c)
	}
}

// prepend makes carried entries the first ones, in the place of those before and of the
// same indexes.
func (g *Group) prepend(c *carried) {
	old := append(g.aside, run{g.first, g.refs})
	now := []run{{first: c.first}}
	for _, at := range c.places {
		at.count(1)
		now[0].refs.push(at)
	}
	end := now[0].last() + 1 // the index behind them
	for _, r := range old {
		for i := range r.refs.len() {
			at, index := *r.refs.at(i), r.first+uint64(i)
			if index < end {
				at.count(-1)
				continue
			}
			if into := &now[len(now)-1]; index == into.last()+1 {
				into.refs.push(at)
			} else {
				now = append(now, run{first: index})
				now[len(now)-1].refs.push(at)
			}
		}
	}
	n := len(now) - 1
	g.aside, g.first, g.refs = now[:n], now[n].first, now[n].refs
}
