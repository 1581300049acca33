package wal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/heraldmq/herald/replication/disk"
)

// recover reads what is there and leaves the log ready to be written to.
func (l *Log) recover() error {
	names, err := l.opt.FS.List(l.opt.Dir)
	if err != nil {
		return err
	}
	var numbers []uint64
	for _, name := range names {
		number, free, ok := parseName(name)
		switch {
		case !ok:
		case free:
			if err := l.adoptSpare(filepath.Join(l.opt.Dir, name)); err != nil {
				return err
			}
			if number >= l.pool.next {
				l.pool.next = number + 1
			}
		default:
			numbers = append(numbers, number) // sorted, since the names are
		}
	}
	mark, acked, err := openMarker(l.opt.FS, l.opt.Dir, l.node, len(numbers) == 0)
	if err != nil {
		return err
	}
	l.mark = mark
	if err := l.openSegments(numbers, acked); err != nil {
		return err
	}
	l.end = position{segment: acked.segment, batch: acked.batch}
	for i, seg := range l.segments {
		var next *header
		if i < len(l.segments)-1 {
			next = &l.segments[i+1].head
		}
		if err := l.replay(seg, next, acked); err != nil {
			return err
		}
	}
	for _, g := range l.groups {
		g.restored()
	}
	if len(l.segments) == 0 {
		return nil
	}
	last := l.segments[len(l.segments)-1]
	if err := l.out.resume(last, int64(l.end.offset)); err != nil {
		return err
	}
	l.pool.size = max(l.pool.size, min(4*last.size, l.opt.SegmentBytes))
	if err := l.mark.write(l.end); err != nil {
		return err
	}
	return l.mark.sync()
}

func (l *Log) adoptSpare(name string) error {
	f, err := disk.OpenBulk(l.opt.FS, name, false, 0)
	if err != nil {
		return fmt.Errorf("open a spare segment: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if size < segmentHeader { // a crash while it was made
		return errors.Join(f.Close(), l.opt.FS.Remove(name))
	}
	l.pool.put(&spare{file: f, name: name, size: size})
	return nil
}

// openSegments opens the files and checks that they are one run of this node's.
func (l *Log) openSegments(numbers []uint64, acked position) error {
	if len(numbers) == 0 {
		if acked.segment != 0 {
			return &disk.CorruptError{File: segmentName(l.opt.Dir, acked.segment), Offset: -1, Reason: "the segment is missing"}
		}
		return nil
	}
	for i, number := range numbers {
		name := segmentName(l.opt.Dir, number)
		if want := numbers[0] + uint64(i); number != want {
			return &disk.CorruptError{File: segmentName(l.opt.Dir, want), Offset: -1, Reason: "the segment is missing"}
		}
		f, err := disk.OpenBulk(l.opt.FS, name, false, 0)
		if err != nil {
			return fmt.Errorf("open segment %d: %w", number, err)
		}
		size, err := f.Size()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		last := i == len(numbers)-1
		if last {
			// What is read from here on must be what the disk holds, not what a kernel
			// kept in memory after a failed fsync.
			if err := f.Datasync(); err != nil {
				return errors.Join(fmt.Errorf("open segment %d: %w", number, err), f.Close())
			}
			f.DropCache()
		}
		b := make([]byte, segmentHeader)
		if n, err := f.ReadAt(b, 0); n < len(b) && err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("read segment %d: %w", number, err), f.Close())
		}
		h, err := parseSegmentHeader(b)
		if err == nil && h.number != number {
			err = fmt.Errorf("the header is that of segment %d", h.number)
		}
		var newer *disk.NewerError
		if errors.As(err, &newer) {
			newer.File = name
			return errors.Join(newer, f.Close())
		}
		if err != nil && last && acked.segment < number {
			// A crash after the file got its name and before its first batch was
			// durable: nobody was told about anything in it.
			l.opt.Log.Info("a segment was not begun", "file", name)
			if err := f.Close(); err != nil {
				return err
			}
			free := freeName(l.opt.Dir, number)
			if err := l.opt.FS.Rename(name, free); err != nil {
				return err
			}
			if err := l.opt.FS.SyncDir(l.opt.Dir); err != nil { // see recycle
				return err
			}
			return l.adoptSpare(free)
		}
		if err != nil {
			f.Close()
			return &disk.CorruptError{File: name, Offset: 0, Reason: err.Error()}
		}
		if h.node != l.node {
			f.Close()
			return fmt.Errorf("open %s: it belongs to another node", name)
		}
		l.segments = append(l.segments, &segment{file: f, name: name, size: size, head: h, seed: h.seed()})
	}
	if n := len(l.segments); n == 0 || l.segments[n-1].head.number < acked.segment {
		return &disk.CorruptError{File: segmentName(l.opt.Dir, acked.segment), Offset: -1, Reason: "the segment is missing"}
	}
	return nil
}

// replay reads a segment's records into the index and moves l.end behind them. next is
// the header of the segment that follows, nil for the last one.
func (l *Log) replay(seg *segment, next *header, acked position) error {
	if l.end.segment != 0 && seg != l.segments[0] && (seg.head.prevEnd != l.end.offset || seg.head.prevChain != l.end.chain) {
		before := l.segments[0]
		for _, s := range l.segments {
			if s.head.number == seg.head.number-1 {
				before = s
			}
		}
		return &disk.CorruptError{
			File: before.name, Offset: int64(l.end.offset),
			Reason: fmt.Sprintf("the records end here; the next segment says they go on to %d", seg.head.prevEnd),
		}
	}
	win := window{file: seg.file, size: seg.size}
	l.end.segment, l.end.offset, l.end.chain = seg.head.number, segmentHeader, seg.head.crc
	batch, open := seg.head.batch, false // the batch being read; whether its last record is still to come
	for {
		r, b, err := win.record(int64(l.end.offset), seg.seed)
		if err != nil && !errors.Is(err, errNoRecord) {
			return fmt.Errorf("read segment %d: %w", seg.head.number, err)
		}
		if err != nil || r.prev != l.end.chain {
			skipped := false
			if l.opt.Salvage {
				if batch, skipped, err = l.skip(seg, &win, batch, l.beingWritten(batch, open, acked), next, acked); err != nil {
					return err
				}
			}
			if skipped {
				continue
			}
			break
		}
		l.restore(&r, place{segment: seg, offset: uint32(l.end.offset), size: uint32(len(b)), crc: r.crc})
		l.end.offset += uint64(len(b))
		l.end.chain = r.crc
		batch, open = r.batch, r.flags&flagEnd == 0
	}
	batch = l.beingWritten(batch, open, acked)
	l.end.batch = batch
	if next != nil {
		return nil
	}
	return l.judge(seg, &win, batch, acked)
}

// beingWritten returns the batch that was being written where the records end, given that of
// the last one and whether it lacks some.
func (l *Log) beingWritten(batch uint64, open bool, acked position) uint64 {
	if !open && l.end.offset > segmentHeader {
		batch++
	}
	if l.end.segment == acked.segment && l.end.offset == acked.offset {
		batch = max(batch, acked.batch+1) // numbers are left out at a start
	}
	return batch
}

// judge decides whether what follows the last good record is a write torn by a
// crash. The doc comment of the package has the argument.
func (l *Log) judge(seg *segment, win *window, batch uint64, acked position) error {
	damage := &disk.CorruptError{File: seg.name, Offset: int64(l.end.offset)}
	if l.end.before(acked) {
		damage.Reason = fmt.Sprintf("no valid record, but the log was acknowledged up to offset %d", acked.offset)
		return damage
	}
	if l.end.segment == acked.segment && l.end.offset == acked.offset && l.end.chain != acked.chain {
		damage.Reason = "the last record is not the one that was acknowledged"
		return damage
	}
	for off := int64(l.end.offset) + 8; off+recordHeader <= seg.size; off += 8 {
		r, _, err := win.record(off, seg.seed)
		if err != nil && !errors.Is(err, errNoRecord) {
			return fmt.Errorf("read segment %d: %w", seg.head.number, err)
		}
		if err == nil && r.batch > batch {
			damage.Reason = fmt.Sprintf("no valid record, though a later one at %d is good", off)
			return damage
		}
	}
	return nil
}

// restore puts a record that was read into the index.
func (l *Log) restore(r *record, at place) {
	if r.kind == kindEntry && r.flags&flagMoved != 0 {
		l.restoreMoved(l.groupLocked(r.group), r, at)
		return
	}
	if l.salvage.met {
		l.salvage.compare(l, r, at)
	}
	g := l.groupLocked(r.group)
	if r.kind == kindTruncate {
		g.cut(r.index)
		return
	}
	if r.flags&flagRestart != 0 {
		g.cut(0)
	}
	g.restore(at, r.index)
}

// window reads a file through a buffer.
type window struct {
	file disk.File
	size int64
	off  int64
	buf  []byte
}

const windowBytes = 256 << 10

// at returns n bytes at off; fewer at the end of the file. They are valid until
// the next call.
func (w *window) at(off, n int64) ([]byte, error) {
	n = min(n, w.size-off)
	if n <= 0 {
		return nil, nil
	}
	if off >= w.off && off+n <= w.off+int64(len(w.buf)) {
		return w.buf[off-w.off:][:n], nil
	}
	want := min(max(n, windowBytes), w.size-off)
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf = w.buf[:want]
	w.off = off
	got, err := w.file.ReadAt(w.buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		w.buf = w.buf[:0]
		return nil, err
	}
	w.buf = w.buf[:got]
	return w.buf[:min(n, int64(got))], nil
}

// record returns the record at off, checked, with all its bytes. errNoRecord says
// there is none.
func (w *window) record(off int64, seed uint32) (record, []byte, error) {
	b, err := w.at(off, recordHeader)
	if err != nil {
		return record{}, nil, err
	}
	r, err := parseHeader(b, w.size-off)
	if err != nil {
		return r, nil, err
	}
	if b, err = w.at(off, r.size()); err != nil {
		return r, nil, err
	}
	r, _, err = decodeRecord(b, seed)
	return r, b, err
}
