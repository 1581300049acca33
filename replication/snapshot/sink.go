package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"path/filepath"

	"github.com/heraldmq/herald/replication/disk"
)

// sink is a snapshot being written, by one goroutine.
type sink struct {
	store       *Store
	id          string
	index, term uint64
	taken       int64  // ns since 1970
	name        string // of the unfinished file
	file        disk.File
	off         int64
	length      uint64
	sum         hash.Hash32
	closed      bool
}

// ID implements raft.SnapshotSink.
func (w *sink) ID() string { return w.id }

func (w *sink) put(p []byte) error {
	if _, err := w.file.WriteAt(p, w.off); err != nil {
		return fmt.Errorf("write snapshot %s: %w", w.id, err)
	}
	w.off += int64(len(p))
	return nil
}

// Write appends to the body.
func (w *sink) Write(p []byte) (int, error) {
	if err := w.put(p); err != nil {
		return 0, err
	}
	w.sum.Write(p)
	w.length += uint64(len(p))
	return len(p), nil
}

// Close makes the snapshot durable; from then on it counts.
func (w *sink) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	le := binary.LittleEndian
	foot := make([]byte, footerSize)
	le.PutUint64(foot, w.length)
	le.PutUint32(foot[8:], w.sum.Sum32())
	copy(foot[12:], footMagic)
	le.PutUint32(foot[16:], crc32.Checksum(foot[:16], castagnoli))
	err := w.put(foot)
	if err == nil {
		err = w.file.Datasync()
	}
	if err = errors.Join(err, w.file.Close()); err != nil {
		return errors.Join(fmt.Errorf("finish snapshot %s: %w", w.id, err), w.store.opt.FS.Remove(w.name))
	}
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.opt.FS.Rename(w.name, filepath.Join(s.opt.Dir, w.id))
	if err == nil {
		err = s.opt.FS.SyncDir(s.opt.Dir)
	}
	if err != nil {
		return fmt.Errorf("finish snapshot %s: %w", w.id, err)
	}
	s.size.Store(int64(w.length))
	s.when.Store(w.taken)
	if s.opt.Created != nil {
		s.opt.Created(w.index, w.term)
	}
	return s.reapLocked()
}

// Cancel gives the snapshot up.
func (w *sink) Cancel() error {
	if w.closed {
		return nil
	}
	w.closed = true
	return errors.Join(w.file.Close(), w.store.opt.FS.Remove(w.name))
}
