// Package boltlog reads the log of group 0, the catalogue, as versions before kept it:
// in raft-boltdb, with what that lacks. It is read once, to move the entries to a log of
// package wal, and then retired. raft-boltdb and bbolt check no data page: a flipped bit
// is returned as data, a damaged meta page silently takes the file one transaction back,
// and a file that was cut panics. Here
//
//   - every entry carries a checksum over its index, term, type and bytes, checked
//     at each read;
//   - a marker file, synced after each append, says what the last entry is, so that
//     a file that has gone back is noticed;
//   - a panic of bbolt becomes a *disk.CorruptError.
//
// The marker stays behind and says that the log has moved, in a way that makes versions
// before refuse the directory: they find entries missing.
package boltlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/heraldmq/herald/replication/disk"
	"go.etcd.io/bbolt"
)

const (
	sumSize = 4

	fileName   = "log.bolt"
	markerName = "marker"

	markerSlot  = 32
	markerSpace = 4096
	markerMagic = "HBMK"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Log is such a log. Its methods may be called by any number of goroutines.
type Log struct {
	bolt *raftboltdb.BoltStore
	name string // of the bbolt file

	mu   sync.Mutex // one write at a time
	file disk.File  // marker
	gen  uint64
	last position
}

// position is what the marker says: the last entry.
type position struct {
	index, term uint64
}

// Open opens or makes the log in a directory, which must exist and be locked.
func Open(fsys disk.FS, dir string) (*Log, error) {
	l := &Log{name: filepath.Join(dir, fileName)}
	err := l.guard(func() (err error) {
		l.bolt, err = raftboltdb.New(raftboltdb.Options{
			Path: l.name,
			// The free list is written out: without it, opening scans the file on
			// another goroutine, where a panic can't be caught.
			BoltOptions:             &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType},
			MsgpackUseNewTimeFormat: true,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the catalogue's log: %w", err)
	}
	if err := l.openMarker(fsys, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the catalogue's log: %w", err), l.bolt.Close())
	}
	return l, nil
}

func (l *Log) guard(f func() error) error { return Guard(l.name, f) }

// Guard turns a panic of bbolt, which is how it meets damage in the file of that name,
// into a *disk.CorruptError; also the fault of reading its memory map behind the end of a
// file that was cut.
func Guard(name string, f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &disk.CorruptError{File: name, Offset: -1, Reason: fmt.Sprint(r)}
		}
	}()
	return f()
}

func (l *Log) openMarker(fsys disk.FS, dir string) error {
	name := filepath.Join(dir, markerName)
	lastIndex, err := l.LastIndex()
	if err != nil {
		return err
	}
	f, err := fsys.Open(name)
	if disk.IsMissing(err) {
		if lastIndex != 0 {
			return &disk.CorruptError{File: name, Offset: -1, Reason: "the file is missing, though the log is not empty"}
		}
		if f, err = fsys.Create(name); err != nil {
			return err
		}
		l.file = f
		return errors.Join(l.put(position{}), l.mark(position{}), fsys.SyncDir(dir))
	}
	if err != nil {
		return err
	}
	l.file = f
	var found bool
	if l.gen, l.last, found = readMarker(f); !found {
		if lastIndex == 0 { // a crash while it was made
			return errors.Join(l.put(position{}), l.mark(position{}), fsys.SyncDir(dir))
		}
		return &disk.CorruptError{File: name, Offset: -1, Reason: "neither generation is readable"}
	}
	return l.compare(lastIndex)
}

func readMarker(f disk.File) (gen uint64, last position, found bool) {
	for slot := range int64(2) {
		b := make([]byte, markerSlot)
		if n, err := f.ReadAt(b, slot*markerSpace); n < markerSlot && err != nil {
			continue
		}
		if g, p, ok := parseMarker(b); ok && (!found || g > gen) {
			gen, last, found = g, p, true
		}
	}
	return gen, last, found
}

// compare notices a log that has gone back behind its marker.
func (l *Log) compare(lastIndex uint64) error {
	if l.last.index > lastIndex {
		return &disk.CorruptError{
			File: l.name, Offset: -1,
			Reason: fmt.Sprintf("it ends at entry %d, but entry %d was acknowledged: it has gone back", lastIndex, l.last.index),
		}
	}
	if l.last.index == 0 {
		return nil
	}
	var e raft.Log
	if err := l.GetLog(l.last.index, &e); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return err
	} else if err == nil && e.Term != l.last.term {
		return &disk.CorruptError{
			File: l.name, Offset: -1,
			Reason: fmt.Sprintf("entry %d is of term %d, but one of term %d was acknowledged: it has gone back", l.last.index, e.Term, l.last.term),
		}
	}
	return nil
}

func parseMarker(b []byte) (gen uint64, p position, ok bool) {
	le := binary.LittleEndian
	if string(b[:4]) != markerMagic {
		return 0, p, false
	}
	c := append([]byte(nil), b...)
	le.PutUint32(c[4:], 0)
	if crc32.Checksum(c, castagnoli) != le.Uint32(b[4:]) {
		return 0, p, false
	}
	return le.Uint64(b[8:]), position{index: le.Uint64(b[16:]), term: le.Uint64(b[24:])}, true
}

// put writes the marker.
func (l *Log) put(p position) error {
	le := binary.LittleEndian
	l.gen++
	b := make([]byte, markerSlot)
	copy(b, markerMagic)
	le.PutUint64(b[8:], l.gen)
	le.PutUint64(b[16:], p.index)
	le.PutUint64(b[24:], p.term)
	le.PutUint32(b[4:], crc32.Checksum(b, castagnoli))
	if _, err := l.file.WriteAt(b, int64(l.gen%2)*markerSpace); err != nil {
		return fmt.Errorf("write the catalogue's marker: %w", err)
	}
	l.last = p
	return nil
}

// mark writes and syncs the marker.
func (l *Log) mark(p position) error {
	if err := l.put(p); err != nil {
		return err
	}
	if err := l.file.Datasync(); err != nil {
		return fmt.Errorf("write the catalogue's marker: %w", err)
	}
	return nil
}

// FirstIndex returns the first index, 0 when there is none.
func (l *Log) FirstIndex() (i uint64, err error) {
	err = l.guard(func() (err error) { i, err = l.bolt.FirstIndex(); return err })
	return i, err
}

// LastIndex returns the last index, 0 when there is none.
func (l *Log) LastIndex() (i uint64, err error) {
	err = l.guard(func() (err error) { i, err = l.bolt.LastIndex(); return err })
	return i, err
}

// GetLog reads an entry. Damage is a *disk.CorruptError.
func (l *Log) GetLog(index uint64, log *raft.Log) error {
	var e raft.Log
	if err := l.guard(func() error { return l.bolt.GetLog(index, &e) }); err != nil {
		var damage *disk.CorruptError
		if errors.Is(err, raft.ErrLogNotFound) || errors.As(err, &damage) {
			return err
		}
		// What can't be decoded is damaged too.
		return &disk.CorruptError{File: l.name, Offset: -1, Reason: fmt.Sprintf("entry %d: %v", index, err)}
	}
	n := len(e.Data) - sumSize
	if n < 0 || e.Index != index || binary.LittleEndian.Uint32(e.Data[n:]) != sum(&e, e.Data[:n]) {
		return &disk.CorruptError{File: l.name, Offset: -1, Reason: fmt.Sprintf("the checksum of entry %d is wrong", index)}
	}
	e.Data = e.Data[:n:n]
	*log = e
	return nil
}

// sum is the checksum of an entry with the given data.
func sum(e *raft.Log, data []byte) uint32 {
	le := binary.LittleEndian
	var b [21]byte
	le.PutUint64(b[:], e.Index)
	le.PutUint64(b[8:], e.Term)
	b[16] = byte(e.Type)
	le.PutUint32(b[17:], uint32(len(data)))
	crc := crc32.Update(0, castagnoli, b[:])
	crc = crc32.Update(crc, castagnoli, data)
	return crc32.Update(crc, castagnoli, e.Extensions)
}

// StoreLog appends an entry.
func (l *Log) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs appends entries, durably, as versions before did.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	summed := make([]*raft.Log, len(logs))
	for i, e := range logs {
		c := *e
		c.Data = make([]byte, 0, len(e.Data)+sumSize)
		c.Data = append(c.Data, e.Data...)
		c.Data = binary.LittleEndian.AppendUint32(c.Data, sum(e, e.Data))
		summed[i] = &c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.guard(func() error { return l.bolt.StoreLogs(summed) }); err != nil {
		return fmt.Errorf("append to the catalogue's log: %w", err)
	}
	last := logs[len(logs)-1]
	return l.mark(position{index: last.Index, term: last.Term})
}

// Close closes the files.
func (l *Log) Close() error {
	return errors.Join(l.guard(l.bolt.Close), l.file.Close())
}
