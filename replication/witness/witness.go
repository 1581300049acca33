// Package witness keeps, in raft-boltdb, a second account of what group 0 must never
// forget: its term and vote, and how far its log has come. The first accounts are files of
// other kinds (packages stable and wal). What has gone from one of them (a file that was
// deleted, or put back from an old copy) is noticed by the other, and a vote is restored.
//
// bbolt checks no data page, so every value carries a checksum over its key and itself. A
// witness that can't be read is made anew: it is never the only account.
package witness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"sync"
	"time"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/heraldmq/herald/replication/boltlog"
	"github.com/heraldmq/herald/replication/disk"
)

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Store is an open witness. Its methods may be called by any number of goroutines.
type Store struct {
	name string
	bolt *raftboltdb.BoltStore
	mu   sync.Mutex // one write at a time
}

// Open opens the file, or makes it. One that can't be read is kept under the same name
// with .damaged behind it, and why tells what was wrong with it.
func Open(name string) (s *Store, why error, err error) {
	s = &Store{name: name}
	why = s.open()
	var damage *disk.CorruptError
	if why == nil || !errors.As(why, &damage) {
		return s, nil, why
	}
	if err := os.Rename(name, name+".damaged"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, why, fmt.Errorf("put a damaged file away: %w", err)
	}
	if err := s.open(); err != nil {
		return nil, why, fmt.Errorf("make %s anew: %v", name, err) //nolint:errorlint // whatever it is, it isn't damage
	}
	return s, why, nil
}

func (s *Store) open() error {
	err := boltlog.Guard(s.name, func() (err error) {
		s.bolt, err = raftboltdb.New(raftboltdb.Options{
			Path: s.name,
			// The free list is written out: without it, opening scans the file on
			// another goroutine, where a panic can't be caught.
			BoltOptions:             &bbolt.Options{Timeout: time.Second, FreelistType: bbolt.FreelistMapType},
			MsgpackUseNewTimeFormat: true,
		})
		return err
	})
	var damage *disk.CorruptError
	var refused *fs.PathError
	switch {
	case err == nil, errors.As(err, &damage):
		return err
	case errors.As(err, &refused), errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("open %s: %w", s.name, err)
	}
	// bbolt has no type for most of what it finds wrong with a file.
	return &disk.CorruptError{File: s.name, Offset: -1, Reason: err.Error()}
}

// Get returns a value; nil when there is none that is good.
func (s *Store) Get(key string) []byte {
	var b []byte
	err := boltlog.Guard(s.name, func() (err error) { b, err = s.bolt.Get([]byte(key)); return err })
	n := len(b) - sumSize
	if err != nil || n < 0 || binary.LittleEndian.Uint32(b[n:]) != sum(key, b[:n]) {
		return nil
	}
	return b[:n:n]
}

// Set puts a value, durably. After an error the Store must not be used again.
func (s *Store) Set(key string, value []byte) error {
	b := append(make([]byte, 0, len(value)+sumSize), value...)
	b = binary.LittleEndian.AppendUint32(b, sum(key, value))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := boltlog.Guard(s.name, func() error { return s.bolt.Set([]byte(key), b) }); err != nil {
		return fmt.Errorf("write to %s: %w", s.name, err)
	}
	return nil
}

func sum(key string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value)
}

// Close closes the file.
func (s *Store) Close() error { return boltlog.Guard(s.name, s.bolt.Close) }
