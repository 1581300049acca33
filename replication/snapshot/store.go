// Package snapshot keeps a group's last snapshots: a raft.SnapshotStore with a
// checksum over everything, the last two generations, and no half-written file
// that could be taken for a whole one.
//
//	header  magic "HSNP", version u32, meta length u32, meta crc u32
//	meta    JSON: index, term, configuration
//	body    what the state machine wrote
//	footer  body length u64, body crc u32, magic "PNSH", footer crc u32
//
// The meta crc is of the meta; of every version after 1 it is of the header's first twelve
// bytes and the meta, whatever comes after them: so a program before it can tell that the
// version is newer, and not damaged.
//
// A snapshot is written under the name <id>.tmp, synced, and renamed. When the
// newest can't be read the one before counts, if it can be read: the log is kept
// from there on.
package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

const (
	version    = 1
	headerSize = 16
	footerSize = 20
	headMagic  = "HSNP"
	footMagic  = "PNSH"
	metaMax    = 16 << 20
	keep       = 2
	suffix     = ".snap"
	unfinished = ".tmp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options is what a store is opened with. All but Created are required.
type Options struct {
	FS  disk.FS
	Dir string
	// Created is called when a snapshot has become durable, own or installed.
	Created func(index, term uint64)
	Log     *slog.Logger
}

// Store is the snapshots of one group. Its methods may be called by any number of
// goroutines.
type Store struct {
	opt  Options
	mu   sync.Mutex
	size atomic.Int64
	when atomic.Int64 // the newest was taken, ns since 1970; 0 without one
}

// Taken returns when the newest snapshot was made; the zero time without one, or
// before List.
func (s *Store) Taken() time.Time {
	ns := s.when.Load()
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// Size returns the bytes of the body of the newest snapshot; 0 without one, or before
// List.
func (s *Store) Size() int64 { return s.size.Load() }

var _ raft.SnapshotStore = (*Store)(nil)

// meta is what is known about a snapshot besides its body.
type meta struct {
	Index              uint64
	Term               uint64
	ConfigurationIndex uint64
	Configuration      raft.Configuration
	Taken              int64 `json:",omitempty"` // ns since 1970
}

// Open opens the store in a directory, which it makes if it is missing, and
// removes what a crash left unfinished.
func Open(o Options) (*Store, error) {
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	if err := o.FS.SyncDir(filepath.Dir(o.Dir)); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, unfinished) {
			if err := o.FS.Remove(filepath.Join(o.Dir, name)); err != nil {
				return nil, fmt.Errorf("remove an unfinished snapshot: %w", err)
			}
		}
	}
	return &Store{opt: o}, nil
}

// List returns the readable snapshots, newest first. When there are some, but
// none is readable, it returns a *disk.CorruptError: that is not an empty node. When one is
// of a newer version it returns a *disk.NewerError.
func (s *Store) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.namesLocked()
	if err != nil {
		return nil, err
	}
	var metas []*raft.SnapshotMeta
	var damage error
	for _, name := range names {
		m, f, err := s.read(name)
		if disk.IsNewer(err) {
			return nil, err // also when one before could be read: it is not to be gone back to
		}
		if err != nil {
			damage = err
			s.opt.Log.Warn("a snapshot is not readable", "error", err)
			continue
		}
		f.file.Close()
		if len(metas) == 0 {
			s.size.Store(m.Size)
			s.when.Store(f.taken)
		}
		metas = append(metas, m)
	}
	if len(metas) == 0 && damage != nil {
		return nil, damage
	}
	return metas, nil
}

// Verify reads all snapshots and checks them. The error is a *disk.CorruptError for
// damage in any of them.
func (s *Store) Verify() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, err := s.namesLocked()
	if err != nil {
		return err
	}
	for _, name := range names {
		_, f, err := s.read(name)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("close a snapshot: %w", err)
		}
	}
	return nil
}

// Generations returns the indexes of the newest readable snapshot and of the one
// before; 0 where there is none.
func (s *Store) Generations() (newest, older uint64, err error) {
	metas, err := s.List()
	if err != nil || len(metas) == 0 {
		return 0, 0, err
	}
	if len(metas) > 1 {
		older = metas[1].Index
	}
	return metas[0].Index, older, nil
}

// namesLocked returns the file names, newest first.
func (s *Store) namesLocked() ([]string, error) {
	names, err := s.opt.FS.List(s.opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, suffix) })
	slices.Reverse(names)
	return names, nil
}

// Open returns a snapshot. Its body has been checked.
func (s *Store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, b, err := s.read(id)
	if err != nil {
		return nil, nil, err
	}
	return m, b, nil
}

// body reads the body of a snapshot file.
type body struct {
	*io.SectionReader
	file  disk.File
	taken int64
}

func (b *body) Close() error { return b.file.Close() }

// read opens a snapshot file and checks all of it.
func (s *Store) read(id string) (*raft.SnapshotMeta, *body, error) {
	name := filepath.Join(s.opt.Dir, filepath.Base(id))
	f, err := s.opt.FS.Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("open a snapshot: %w", err)
	}
	m, b, err := readFile(f, name)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: id, Index: m.Index, Term: m.Term,
		Configuration: m.Configuration, ConfigurationIndex: m.ConfigurationIndex, Size: b.Size(),
	}, b, nil
}

func readFile(f disk.File, name string) (m meta, b *body, err error) {
	damaged := func(off int64, reason string) error {
		return &disk.CorruptError{File: name, Offset: off, Reason: reason}
	}
	size, err := f.Size()
	if err != nil {
		return m, nil, fmt.Errorf("read %s: %w", name, err)
	}
	le := binary.LittleEndian
	head := make([]byte, headerSize)
	if n, err := f.ReadAt(head, 0); n < headerSize || string(head[:4]) != headMagic {
		return m, nil, damaged(0, fmt.Sprintf("no snapshot header (%v)", err))
	}
	if v := le.Uint32(head[4:]); v != version {
		if v > version && isNewer(f, head, size) {
			return m, nil, &disk.NewerError{File: name, Version: v, Reads: version}
		}
		return m, nil, damaged(4, fmt.Sprintf("snapshot version %d, this program reads %d", v, version))
	}
	metaLen := int64(le.Uint32(head[8:]))
	if metaLen > metaMax || headerSize+metaLen+footerSize > size {
		return m, nil, damaged(8, "the file is too short")
	}
	js := make([]byte, metaLen)
	if _, err := f.ReadAt(js, headerSize); err != nil {
		return m, nil, fmt.Errorf("read %s: %w", name, err)
	}
	if crc32.Checksum(js, castagnoli) != le.Uint32(head[12:]) {
		return m, nil, damaged(headerSize, "the checksum of the description is wrong")
	}
	if err := json.Unmarshal(js, &m); err != nil {
		return m, nil, damaged(headerSize, err.Error())
	}
	foot := make([]byte, footerSize)
	if _, err := f.ReadAt(foot, size-footerSize); err != nil && !errors.Is(err, io.EOF) {
		return m, nil, fmt.Errorf("read %s: %w", name, err)
	}
	start := headerSize + metaLen
	length := size - footerSize - start
	if string(foot[12:16]) != footMagic || crc32.Checksum(foot[:16], castagnoli) != le.Uint32(foot[16:]) || int64(le.Uint64(foot)) != length {
		return m, nil, damaged(size-footerSize, "no snapshot footer")
	}
	sum := crc32.New(castagnoli)
	if _, err := io.Copy(sum, io.NewSectionReader(f, start, length)); err != nil {
		return m, nil, fmt.Errorf("read %s: %w", name, err)
	}
	if sum.Sum32() != le.Uint32(foot[8:]) {
		return m, nil, damaged(start, "the body's checksum is wrong")
	}
	return m, &body{SectionReader: io.NewSectionReader(f, start, length), file: f, taken: m.Taken}, nil
}

// isNewer tells whether a header of another version is what a later program wrote.
func isNewer(f disk.File, head []byte, size int64) bool {
	le := binary.LittleEndian
	n := int64(le.Uint32(head[8:]))
	if n > metaMax || headerSize+n > size {
		return false
	}
	js := make([]byte, n)
	if got, err := f.ReadAt(js, headerSize); got < len(js) && err != nil {
		return false
	}
	return crc32.Update(crc32.Checksum(head[:12], castagnoli), castagnoli, js) == le.Uint32(head[12:])
}

// Create begins a snapshot. It counts from the sink's Close on.
func (s *Store) Create(v raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if v != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("make a snapshot of version %d: only %d is known", v, raft.SnapshotVersionMax)
	}
	now := time.Now().UnixNano()
	js, err := json.Marshal(meta{Index: index, Term: term, Configuration: conf, ConfigurationIndex: confIndex, Taken: now})
	if err != nil {
		return nil, fmt.Errorf("make a snapshot: %w", err)
	}
	// Names sort by index, then term.
	id := fmt.Sprintf("%016x-%016x%s", index, term, suffix)
	w := &sink{store: s, id: id, index: index, term: term, taken: now, name: filepath.Join(s.opt.Dir, id+unfinished), sum: crc32.New(castagnoli)}
	if w.file, err = s.opt.FS.Create(w.name); err != nil {
		return nil, fmt.Errorf("make a snapshot: %w", err)
	}
	le := binary.LittleEndian
	head := append([]byte(headMagic), make([]byte, 12)...)
	le.PutUint32(head[4:], version)
	le.PutUint32(head[8:], uint32(len(js)))
	le.PutUint32(head[12:], crc32.Checksum(js, castagnoli))
	if err := w.put(append(head, js...)); err != nil {
		return nil, errors.Join(err, w.Cancel())
	}
	return w, nil
}

// reapLocked removes all but the newest generations.
func (s *Store) reapLocked() error {
	names, err := s.namesLocked()
	if err != nil {
		return err
	}
	for _, name := range names[min(keep, len(names)):] {
		if err := s.opt.FS.Remove(filepath.Join(s.opt.Dir, name)); err != nil {
			return fmt.Errorf("remove an old snapshot: %w", err)
		}
	}
	return nil
}
