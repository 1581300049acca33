package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

// The writer's role. Every store is a request in the queue. Whoever finds nobody
// writing takes the role, and writes batches of whatever is queued, of any group,
// until its own request is done; then it hands the role to the owner of the
// oldest request, or lays it down. So a lone caller writes on its own goroutine,
// without a switch to another and back, many callers share one write and one
// fdatasync, and nobody writes for others for longer than for itself.

// batchMax bounds the bytes of a batch with more than one record.
const batchMax = 16 << 20

// request is one call to store something.
type request struct {
	group    *Group
	logs     []*raft.Log
	restart  bool     // the group's log begins anew with logs[0]
	truncate uint64   // without logs: forget the entries from here on
	carried  *carried // the logs are stored already, and are carried forward
	begin    bool     // they are the first of those carried
	end      bool     // and the last

	// Owned by the writer.
	next int // records of it that are written
	done bool
	err  error

	wake chan wake // 1 deep; nil for a request whose owner writes
}

type wake struct{ lead bool }

func (r *request) records() int { return max(len(r.logs), 1) }

// planned is a record of the batch being made.
type planned struct {
	req *request
	log *raft.Log // nil: a truncation
	rec record
	at  place
}

// submit stores a request and returns when it is durable.
func (l *Log) submit(r *request) error {
	l.queueMu.Lock()
	if l.failed != nil {
		defer l.queueMu.Unlock()
		return fmt.Errorf("append to the log: %w", l.failed)
	}
	l.queue = append(l.queue, r)
	if l.writing {
		r.wake = make(chan wake, 1)
		l.queueMu.Unlock()
		if w := <-r.wake; !w.lead {
			return r.err
		}
	} else {
		l.writing = true
		l.queueMu.Unlock()
	}

	for !r.done {
		l.writeBatch()
	}
	l.handOver()
	return r.err
}

// handOver gives the writer's role to whoever waits longest.
func (l *Log) handOver() {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	if len(l.queue) == 0 {
		l.writing = false
		l.idle.Broadcast()
		return
	}
	l.queue[0].wake <- wake{lead: true}
}

// writeBatch writes one batch and ends the requests that are complete with it.
// After a failure it ends all that are queued.
func (l *Log) writeBatch() {
	l.queueMu.Lock()
	err := l.failed
	l.queueMu.Unlock()
	if err == nil {
		err = disk.Slow(l.opt.Slow, l.opt.Slowed, func() error { return disk.Deadline(l.opt.Deadline, l.late, l.tryBatch) })
		if err != nil {
			l.fail(err)
		} else {
			l.publish()
		}
	}

	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	if l.failed != nil && err == nil {
		err = l.failed // the deadline passed: it may be durable, but the node is going down
	}
	n := 0
	for _, r := range l.queue {
		if err == nil && r.next < r.records() {
			break
		}
		n++
		r.done = true
		if err != nil {
			r.err = fmt.Errorf("append to the log: %w", err)
		}
		if r.wake != nil {
			r.wake <- wake{}
		}
	}
	l.queue = slices.Delete(l.queue, 0, n)
}

// tryBatch lays out as many queued records as fit in the segment, writes and
// syncs them.
func (l *Log) tryBatch() error {
	l.queueMu.Lock()
	queue := l.queue
	first := queue[0].size(queue[0].next)
	l.queueMu.Unlock()

	seg := l.active()
	if seg == nil || int64(l.end.offset)+first > seg.size {
		var err error
		if seg, err = l.roll(first); err != nil {
			return err
		}
	}
	l.layOut(queue, seg.size-int64(l.end.offset))
	bytes, err := l.encode(seg)
	if err != nil {
		return fmt.Errorf("append to segment %d: %w", seg.head.number, err)
	}
	syncing := time.Now()
	if err := seg.file.Datasync(); err != nil {
		return fmt.Errorf("append to segment %d: %w", seg.head.number, err)
	}
	synced := time.Since(syncing)
	if l.named {
		if err := l.opt.FS.SyncDir(l.opt.Dir); err != nil {
			return fmt.Errorf("append to segment %d: %w", seg.head.number, err)
		}
	}
	began := l.named
	l.head, l.named = nil, false
	last := &l.plan[len(l.plan)-1]
	l.end.offset = uint64(last.at.offset) + uint64(last.at.size)
	l.end.chain = last.at.crc
	l.end.batch++
	if err := l.mark.write(l.end); err != nil {
		return err
	}
	if l.opt.Synced != nil {
		l.opt.Synced(len(l.plan), bytes, synced)
	}
	if began {
		// From now on a segment whose header is unreadable is one that held
		// something, also after a power cut.
		return l.mark.sync()
	}
	if !l.dirty.Swap(true) {
		l.kick()
	}
	return nil
}

func (r *request) size(i int) int64 {
	if len(r.logs) == 0 {
		return recordHeader
	}
	return recordSize(int64(len(r.logs[i].Data)), int64(len(r.logs[i].Extensions)))
}

// layOut fills l.plan with the records of the next batch: at least one, at most
// room bytes.
func (l *Log) layOut(queue []*request, room int64) {
	l.plan = l.plan[:0]
	room = min(room, max(batchMax, queue[0].size(queue[0].next)))
	for _, r := range queue {
		if r.carried != nil && len(l.plan) > 0 {
			return // in a batch of its own: what else is in it isn't in the index yet
		}
		for i := r.next; i < r.records(); i++ {
			n := r.size(i)
			if n > room {
				return
			}
			room -= n
			p := planned{req: r}
			if len(r.logs) > 0 {
				p.log = r.logs[i]
				p.rec = entryRecord(r.group.id, p.log)
				if r.restart && i == 0 {
					p.rec.flags |= flagRestart
				}
				if r.carried != nil {
					p.rec.flags |= r.flags(i)
				}
			} else {
				p.rec = record{kind: kindTruncate, group: r.group.id, index: r.truncate}
			}
			l.plan = append(l.plan, p)
		}
		if r.carried != nil {
			return
		}
	}
}

// encode writes the plan out, and returns how many bytes that were. They are not durable yet.
func (l *Log) encode(seg *segment) (bytes int64, err error) {
	l.out.append(l.head)
	at, chain := int64(l.end.offset), l.end.chain
	for i := range l.plan {
		p := &l.plan[i]
		p.rec.prev, p.rec.batch = chain, l.end.batch+1
		if i == len(l.plan)-1 {
			p.rec.flags |= flagEnd
		}
		var data, ext []byte
		if p.log != nil {
			data, ext = p.log.Data, p.log.Extensions
		}
		l.out.record(&p.rec, data, ext, seg.seed)
		chain = p.rec.crc
		p.at = place{segment: seg, offset: uint32(at), size: uint32(p.rec.size()), crc: chain}
		at += p.rec.size()
	}
	return at - int64(l.end.offset) + int64(len(l.head)), l.out.flush()
}

// publish makes the batch visible.
func (l *Log) publish() {
	truncated := false
	l.mu.Lock()
	for i := range l.plan {
		p := &l.plan[i]
		p.req.next++
		if p.log == nil {
			p.req.group.truncateLocked(p.rec.index)
			truncated = true
			continue
		}
		if p.req.carried != nil {
			p.req.group.arrivedLocked(p.req.carried, p.at, p.rec.flags)
			continue
		}
		if p.rec.flags&flagRestart != 0 {
			p.req.group.truncateLocked(0)
			truncated = true
		}
		p.req.group.pushLocked(p.at, p.log.Index, p.log)
	}
	l.evictLocked(l.plan[0].req.group)
	l.mu.Unlock()
	clear(l.plan) // don't keep entries alive
	if truncated {
		l.retire()
	}
	if l.active().size/4 < int64(l.end.offset) {
		l.filling.Store(true)
	}
	if l.pool.wants(l.filling.Load()) {
		l.kick()
	}
}

// evictLocked keeps the entries in memory within bounds, beginning with g. The
// last entry of a group always stays.
func (l *Log) evictLocked(g *Group) {
	for l.tailBytes > l.opt.TailBytes && g.tail.len() > 1 {
		g.dropTailLocked()
	}
	for _, g := range l.groups {
		for l.tailBytes > l.opt.TailBytes && g.tail.len() > 1 {
			g.dropTailLocked()
		}
	}
}

// active returns the segment that is written to, nil when there is none yet. For
// the writer only.
func (l *Log) active() *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segments) == 0 {
		return nil
	}
	return l.segments[len(l.segments)-1]
}

// roll goes on to a new segment with room for a record of n bytes. Its header is
// written together with the first batch. When there is no space it waits for some:
// the entries were admitted, and refusing them now would leave raft with half of
// what it stored. The write deadline bounds the wait.
func (l *Log) roll(n int64) (*segment, error) {
	sp, err := l.takeSpare(segmentHeader + n)
	if err != nil {
		return nil, fmt.Errorf("go on to segment %d: %w", l.end.segment+1, err)
	}
	h := header{
		number: l.end.segment + 1, salt: rand.Uint64(), node: l.node,
		prevEnd: l.end.offset, prevChain: l.end.chain, batch: l.end.batch + 1,
	}
	name := segmentName(l.opt.Dir, h.number)
	if err := l.opt.FS.Rename(sp.name, name); err != nil {
		return nil, fmt.Errorf("go on to segment %d: %w", h.number, err)
	}
	l.head = h.encode()
	l.named = true
	seg := &segment{file: sp.file, name: name, size: sp.size, head: h, seed: h.seed()}
	l.end.segment, l.end.offset, l.end.chain = h.number, segmentHeader, h.crc
	l.out.begin(seg)
	l.mu.Lock()
	l.segments = append(l.segments, seg)
	l.mu.Unlock()
	l.filling.Store(false)
	l.retire() // the one before may hold nothing alive
	l.kick()
	return seg, nil
}

// takeSpare returns a spare file of at least size bytes, making one if it must.
func (l *Log) takeSpare(size int64) (*spare, error) {
	for {
		if sp := l.pool.take(size); sp != nil {
			return sp, nil
		}
		sp, err := l.makeSpare(size)
		if err == nil || !errors.Is(err, disk.ErrNoSpace) {
			return sp, err
		}
		l.starved.Store(true)
		l.setFull(true, err)
		l.kick()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-l.closing:
			return nil, ErrClosed
		}
		l.queueMu.Lock()
		err = l.failed
		l.queueMu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}
