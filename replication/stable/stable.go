// Package stable keeps what a voter must never forget: its term, and whom it
// voted for in which term. One small file per group, a raft.StableStore.
//
//	two slots, at 0 and 4096, of 256 bytes each, little-endian
//	  0 magic "HVOT"       4 crc u32 (of all other bytes)
//	  8 generation u64    16 node u64   24 group u32   28 candidate length u32
//	 32 current term u64  40 vote term u64   48 candidate, zeros
//	240 incarnation, zeros
//
// A change is written to one slot and synced; then it is acknowledged, and copied
// to the other slot without a sync. The next change goes first to that other slot,
// so while a slot may be torn by a crash, the other one holds the last
// acknowledged state, synced; and when a slot is damaged later, the copy takes no
// acknowledged vote with it. Opening reads both: the newest good one counts, and
// the other is repaired before anything else is written.
//
// raft writes a vote as two keys, the term and then the candidate; a crash
// between them pairs the new term with the old candidate, who would then get a
// second vote unchecked (hashicorp/raft #661). Here the term waits in memory for
// the candidate, and both become one record.
//
// A Witness may keep the last record a second time. It is written after the file; opening
// takes the newest record of the three, so that a file that was deleted, damaged or put
// back from an old copy is made good.
//
// The incarnation tells this replica from others of the same group that were on the
// node before: whoever has no file has no memory, and gets a new one.
package stable

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/raft"
	"github.com/heraldmq/herald/replication/disk"
)

const (
	slotSize  = 256
	slotSpace = 4096
	slotMagic = "HVOT"
	incAt     = 240
	nameMax   = incAt - 48
	incMax    = slotSize - incAt
)

// The keys raft uses.
const (
	keyTerm      = "CurrentTerm"
	keyVoteTerm  = "LastVoteTerm"
	keyCandidate = "LastVoteCand"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNotFound has the text that raft compares with.
var errNotFound = errors.New("not found")

// MayNotVoteError says that a node can't know what it has voted for: it must not
// vote or lead in this group before it has caught up as a non-voter.
type MayNotVoteError struct {
	File   string
	Reason string
}

func (e *MayNotVoteError) Error() string {
	return fmt.Sprintf("this node may not vote: %s: %s; restore the file from a backup, or let the node join anew", e.File, e.Reason)
}

// state is what is stored.
type state struct {
	term      uint64
	voteTerm  uint64
	candidate string

	incarnation string
}

// Witness is a second place for the record of a Store.
type Witness interface {
	// Get returns what was Set last; nil when that isn't there, or isn't good.
	Get() []byte
	// Set makes a record durable. After an error the Store must not be used again.
	Set(record []byte) error
}

// Store is the term and vote of one group. Its methods may be called by any
// number of goroutines. Writes are durable on return; after a failed one the
// Store must not be used again.
type Store struct {
	file   disk.File
	name   string
	node   uint64
	group  uint32
	second Witness // may be nil

	mu     sync.Mutex
	gen    uint64
	now    state
	staged *uint64 // vote term that waits for its candidate
}

var _ raft.StableStore = (*Store)(nil)

// Open opens the file of a group below dir, or makes it, for a replica of the given
// incarnation (at most 16 bytes). Damage that can't be repaired from the other slot is
// a *MayNotVoteError.
func Open(fsys disk.FS, dir, node string, group uint32, incarnation string) (*Store, error) {
	return OpenWitnessed(fsys, dir, node, group, incarnation, nil)
}

// OpenWitnessed is Open with a second place for the record; nil: there is none. A new
// incarnation begins only where neither knows of an earlier one.
func OpenWitnessed(fsys disk.FS, dir, node string, group uint32, incarnation string, second Witness) (*Store, error) {
	if len(incarnation) > incMax {
		return nil, fmt.Errorf("make term and vote: the incarnation %q has more than %d bytes", incarnation, incMax)
	}
	h := fnv.New64a()
	h.Write([]byte(node))
	s := &Store{name: filepath.Join(dir, fmt.Sprint(group)), node: h.Sum64(), group: group, second: second}
	f, err := fsys.Open(s.name)
	if disk.IsMissing(err) {
		gen, st, ok := s.witnessed()
		if !ok {
			return s, s.make(fsys, dir, state{incarnation: incarnation})
		}
		s.gen = gen
		return s, s.make(fsys, dir, st)
	}
	if err != nil {
		return nil, fmt.Errorf("open term and vote: %w", err)
	}
	s.file = f
	if err := s.load(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// make writes an empty file under another name first: it never exists half.
func (s *Store) make(fsys disk.FS, dir string, st state) error {
	f, err := fsys.Create(s.name + ".new")
	if err != nil {
		return fmt.Errorf("make term and vote: %w", err)
	}
	s.file = f
	if err := errors.Join(s.write(st), s.sync()); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(fsys.Rename(s.name+".new", s.name), fsys.SyncDir(dir)); err != nil {
		return errors.Join(fmt.Errorf("make term and vote: %w", err), f.Close())
	}
	return nil
}

// witnessed returns the record of the second place, if that has one of this store.
func (s *Store) witnessed() (gen uint64, st state, ok bool) {
	if s.second == nil {
		return 0, st, false
	}
	gen, node, group, st, ok := parse(s.second.Get())
	return gen, st, ok && node == s.node && group == s.group
}

func (s *Store) load() error {
	s.file.DropCache()
	var good [2]bool
	var gens [2]uint64
	for slot := range 2 {
		b := make([]byte, slotSize)
		if n, err := s.file.ReadAt(b, int64(slot)*slotSpace); n < slotSize && err != nil {
			continue
		}
		gen, node, group, st, ok := parse(b)
		if !ok {
			continue
		}
		if node != s.node || group != s.group {
			return &MayNotVoteError{File: s.name, Reason: "it belongs to another node or group"}
		}
		good[slot], gens[slot] = true, gen
		if gen >= s.gen {
			s.gen, s.now = gen, st
		}
	}
	gen, st, ok := s.witnessed()
	switch {
	case ok && gen > s.gen: // the file has gone back, or is damaged
		s.gen, s.now = gen, st
		return errors.Join(s.write(st), s.sync())
	case !good[0] && !good[1] && !ok:
		return &MayNotVoteError{File: s.name, Reason: "neither copy is readable"}
	case good[0] && good[1] && gens[0] == gens[1]:
		if ok && gen == s.gen {
			return nil
		}
		return s.witness() // a crash between the two, or it is new
	}
	// The first write must go to the slot that is not the newest: skip a generation
	// if that one's turn is not next.
	if newest := gens[1] > gens[0] || !good[0]; int64(s.gen%2) == 1 != newest {
		s.gen++
	}
	return errors.Join(s.write(s.now), s.sync())
}

// write makes st durable. The caller holds mu, or is alone.
func (s *Store) write(st state) error {
	gen := s.gen + 1
	b, err := s.encode(gen, st)
	if err != nil {
		return err
	}
	first := int64(gen % 2)
	_, err = s.file.WriteAt(b, first*slotSpace)
	if err == nil {
		err = s.file.Datasync()
	}
	if err == nil {
		_, err = s.file.WriteAt(b, (1-first)*slotSpace)
	}
	if err != nil {
		return fmt.Errorf("write term and vote: %w", err)
	}
	s.gen = gen
	s.now = st
	return s.witness()
}

// witness writes the record to the second place.
func (s *Store) witness() error {
	if s.second == nil {
		return nil
	}
	b, err := s.encode(s.gen, s.now)
	if err == nil {
		err = s.second.Set(b)
	}
	if err != nil {
		return fmt.Errorf("write term and vote a second time: %w", err)
	}
	return nil
}

// sync makes the copy durable too.
func (s *Store) sync() error {
	if err := s.file.Datasync(); err != nil {
		return fmt.Errorf("write term and vote: %w", err)
	}
	return nil
}

func (s *Store) encode(gen uint64, st state) ([]byte, error) {
	if len(st.candidate) > nameMax {
		return nil, fmt.Errorf("store a vote for a node whose name has %d bytes: the most is %d", len(st.candidate), nameMax)
	}
	le := binary.LittleEndian
	b := make([]byte, slotSize)
	copy(b, slotMagic)
	le.PutUint64(b[8:], gen)
	le.PutUint64(b[16:], s.node)
	le.PutUint32(b[24:], s.group)
	le.PutUint32(b[28:], uint32(len(st.candidate)))
	le.PutUint64(b[32:], st.term)
	le.PutUint64(b[40:], st.voteTerm)
	copy(b[48:], st.candidate)
	copy(b[incAt:], st.incarnation)
	le.PutUint32(b[4:], crc32.Checksum(b, castagnoli))
	return b, nil
}

func parse(b []byte) (gen, node uint64, group uint32, st state, ok bool) {
	if len(b) < slotSize || string(b[:4]) != slotMagic {
		return
	}
	le := binary.LittleEndian
	c := append([]byte(nil), b[:slotSize]...)
	le.PutUint32(c[4:], 0)
	n := le.Uint32(b[28:])
	if crc32.Checksum(c, castagnoli) != le.Uint32(b[4:]) || n > nameMax {
		return
	}
	st = state{term: le.Uint64(b[32:]), voteTerm: le.Uint64(b[40:]), candidate: string(b[48 : 48+n])}
	st.incarnation = strings.TrimRight(string(b[incAt:slotSize]), "\x00")
	return le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint32(b[24:]), st, true
}

// CheckLog compares with the term of the group's last log entry: a vote file
// that is older than the log was rolled back, or lost and made anew.
func (s *Store) CheckLog(lastTerm uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lastTerm > s.now.term {
		return &MayNotVoteError{File: s.name, Reason: fmt.Sprintf("it says term %d, but the log has an entry of term %d: it was lost or rolled back", s.now.term, lastTerm)}
	}
	return nil
}

// Incarnation returns what the file was made with, or renewed to; "" in files from
// before there were any.
func (s *Store) Incarnation() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.incarnation
}

// Voted tells whether a vote was ever given.
func (s *Store) Voted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.voteTerm != 0 || s.now.candidate != ""
}

// Renew makes this the file of another replica, which has not voted yet.
func (s *Store) Renew(incarnation string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.staged = nil
	return errors.Join(s.write(state{term: s.now.term, incarnation: incarnation}), s.sync())
}

// Set implements raft.StableStore; only the vote's candidate can be set.
func (s *Store) Set(key, val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyCandidate {
		return fmt.Errorf("store %q: not a key of this store", key)
	}
	st := s.now
	st.candidate = string(val)
	if s.staged != nil {
		st.voteTerm = *s.staged
	}
	if err := s.write(st); err != nil {
		return err
	}
	s.staged = nil
	return nil
}

// Get implements raft.StableStore.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyCandidate || s.now.candidate == "" {
		return nil, errNotFound
	}
	return []byte(s.now.candidate), nil
}

// SetUint64 implements raft.StableStore. The term of a vote becomes durable, and
// visible, together with the candidate.
func (s *Store) SetUint64(key []byte, val uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(key) {
	case keyVoteTerm:
		s.staged = &val
		return nil
	case keyTerm:
		st := s.now
		st.term = val
		return s.write(st)
	}
	return fmt.Errorf("store %q: not a key of this store", key)
}

// GetUint64 implements raft.StableStore.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v uint64
	switch string(key) {
	case keyTerm:
		v = s.now.term
	case keyVoteTerm:
		v = s.now.voteTerm
	}
	if v == 0 {
		return 0, errNotFound
	}
	return v, nil
}

// Close closes the file.
func (s *Store) Close() error { return errors.Join(s.sync(), s.file.Close()) }
