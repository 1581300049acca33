package store

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/heraldmq/herald/topics"
)

// Options says where a store is and how much it may hold in memory. The zero
// values of the numbers mean the defaults.
type Options struct {
	Dir           string        // of the group; created when missing
	TailBytes     int64         // entries kept in memory; default 64 MiB
	FlushBytes    int64         // unflushed bytes that start a flush; default half of TailBytes
	FlushInterval time.Duration // age of unflushed changes that starts one; default 10 s
	CacheBytes    int64         // runs of data files and their indexes kept in memory; default 64 MiB
	Log           *slog.Logger

	// Fatal is told of a failure after which the process must not go on (a failed
	// fsync). It is called at most once, on the flusher's goroutine.
	Fatal func(error)
	// Flushed is told that everything up to an index is on disk. It is called on
	// the flusher's goroutine, in rising order.
	Flushed func(topics.Index)
	// Before is called before a flush is written, with the index up to which it holds
	// everything, on the flusher's goroutine: what is kept beside the store, and made of
	// the same entries, can be made to last first.
	Before func(topics.Index)
	// Stalled is told when a flush could not be made for want of space (err) and
	// when flushing goes on again (nil). While it is stalled the store retries by
	// itself and keeps everything in memory: Pressure says how much that is, and
	// new messages must be refused once it passes the bound.
	Stalled func(err error)
}

func (o Options) withDefaults() Options {
	if o.TailBytes <= 0 {
		o.TailBytes = 64 << 20
	}
	if o.FlushBytes <= 0 {
		o.FlushBytes = o.TailBytes / 2
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = 10 * time.Second
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	if o.Flushed == nil {
		o.Flushed = func(topics.Index) {}
	}
	if o.Before == nil {
		o.Before = func(topics.Index) {}
	}
	if o.Stalled == nil {
		o.Stalled = func(error) {}
	}
	return o
}

// Store holds the topics of one group. The package comment says how.
type Store struct {
	o Options

	mu         sync.RWMutex
	topics     map[topics.TopicID]*Topic
	tail       tail
	applied    topics.Index
	unsaved    int64            // bytes of the tail that no file holds yet
	dirty      []*Topic         // changed since the last flush
	deleted    []topics.TopicID // since the last flush
	emptied    bool             // a data file has no live message left
	files      map[uint64]*dataFile
	flushes    []flushed                // which topics are in the flushed part of the tail
	savedSlot  uint64                   // slots below are flushed
	savedIndex topics.Index             // entries up to here are flushed
	armed      bool                     // the flusher knows that something changed
	urged      bool                     // the flusher knows that there is much
	damaged    map[topics.TopicID]error // topics whose state could not be read
	missing    error                    // why messages of readable topics can't be read, nil if all can
	marks      marks
	producers  map[uint64]*producer
	produceds  map[uint64]struct{} // that changed since the last flush

	flusher *flusher
	records map[topics.TopicID]topicRecord // while the store is opened

	cache  *blockCache
	damage damageReport

	// Of the entry being applied; the apply side's, between Begin and End.
	now     topics.Nanos
	entry   []byte
	slot    uint64 // the entry's slot, once a message of it was kept
	slotted bool
	pushed  bool        // it has a slot, or a message made for it has
	recent  [256]*Topic // the topics found last, by the low byte of their ids
	grown   []topics.TopicID
}

// Dir returns the folder of the store.
func (s *Store) Dir() string { return s.o.Dir }

// Applied returns the index of the last entry applied, at Open that up to which
// the files hold everything.
func (s *Store) Applied() topics.Index {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.applied
}

// Pressure returns how many bytes wait in memory for a flush and how many should
// at most. A healthy store stays below the bound; above it, hold publishers back.
func (s *Store) Pressure() (unflushed, bound int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.unsaved, s.o.TailBytes
}

// Begin starts the application of an entry and keeps readers out until End. The
// store keeps entry by reference: it must never change again.
func (s *Store) Begin(i topics.Index, now topics.Nanos, entry []byte) {
	s.mu.Lock()
	s.applied = i
	s.now, s.entry, s.slotted, s.pushed = now, entry, false, false
	for _, id := range s.grown {
		if t := s.topics[id]; t != nil {
			t.grew = false
		}
	}
	s.grown = s.grown[:0]
}

// End lets readers see what the entry did and returns the topics that got
// messages; the slice is valid until the next Begin.
func (s *Store) End() (grown []topics.TopicID) {
	s.entry = nil
	grown = s.grown
	wake := !s.armed
	s.armed = true
	if !s.urged && s.unsaved >= s.o.FlushBytes {
		s.urged, wake = true, true
	}
	s.mu.Unlock()
	if wake {
		select {
		case s.flusher.wake <- struct{}{}:
		default: // it is awake
		}
	}
	return grown
}

// keep makes sure that the entry is in the tail and returns the ref of the
// record at off.
func (s *Store) keep(off int) ref {
	if !s.slotted {
		s.slot = s.push(s.entry, s.now)
		s.slotted = true
	}
	return makeRef(s.slot, off)
}

// record returns the ref of a publish of the entry. One with a time of its own
// gets a slot of its own.
func (s *Store) record(off int, p *topics.Publish) ref {
	if p.Flags&topics.PublishTimed == 0 {
		return s.keep(off)
	}
	r, _ := s.keepMade(p)
	return r
}

// keepMade puts a record the store made itself (a counter's total, a delete
// marker) into the tail.
func (s *Store) keepMade(p *topics.Publish) (ref, []byte) {
	p.Flags &^= topics.PublishTimed // the slot says it
	data := topics.AppendPublish(make([]byte, topics.EntryHeader, topics.EntryHeader+p.Size()), p)
	return makeRef(s.push(data, p.Time), topics.EntryHeader), data
}

func (s *Store) push(data []byte, at topics.Nanos) uint64 {
	s.unsaved += int64(len(data)) + slotOverhead
	more := s.pushed
	s.pushed = true
	return s.tail.push(slot{data: data, time: at, more: more})
}

// CreateTopic adds a topic. Doing it again with the same id has no effect.
func (s *Store) CreateTopic(id topics.TopicID, account string, cfg topics.Config, created topics.Nanos) error {
	if s.topics[id] == nil && s.damaged[id] == nil {
		t := newTopic(s, id, account, cfg, created)
		s.topics[id] = t
		t.touch()
	}
	return nil
}

// UpdateTopic gives a topic another config; lower limits trim at once.
func (s *Store) UpdateTopic(id topics.TopicID, cfg topics.Config) error {
	t := s.topics[id]
	if t == nil || t.hidden() {
		return ErrUnknownTopic
	}
	before := t.cfg.Retention
	t.configure(cfg)
	t.forgetSources()
	t.enforceAll()
	if cfg.Retention != before && t.members != nil && len(t.members.byID) > 0 {
		t.releaseUnneeded()
	}
	return nil
}

// DeleteTopic drops a topic with its messages and consumers; false if there is
// none.
func (s *Store) DeleteTopic(id topics.TopicID) bool {
	if s.damaged[id] != nil {
		delete(s.damaged, id)
		s.deleted = append(s.deleted, id)
		return true
	}
	t := s.topics[id]
	if t == nil {
		return false
	}
	t.clear()
	t.gone = true
	s.marks.drop(t)
	s.deleted = append(s.deleted, id)
	delete(s.topics, id)
	s.recent[id%256] = nil
	return true
}

// find returns the topic a record is about, on the apply side.
func (s *Store) find(id topics.TopicID) *Topic {
	recent := &s.recent[id%256]
	if *recent != nil && (*recent).id == id {
		return *recent
	}
	t := s.topics[id]
	if t == nil || t.hidden() {
		return nil
	}
	*recent = t
	return t
}

// Topic returns a topic, nil if the group has none of that id.
func (s *Store) Topic(id topics.TopicID) *Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t := s.topics[id]; t != nil && !t.hidden() {
		return t
	}
	return nil
}

// Damaged returns the topics whose state could not be read when the store was
// opened, and why. They take no message and show none; delete them or restore
// the folder from a replica.
func (s *Store) Damaged() map[topics.TopicID]error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.damaged)
}

// Topics calls f for each topic until it returns false. f may call the topics'
// methods.
func (s *Store) Topics(f func(*Topic) bool) {
	s.mu.RLock()
	all := make([]*Topic, 0, len(s.topics))
	for _, t := range s.topics {
		if !t.hidden() {
			all = append(all, t)
		}
	}
	s.mu.RUnlock()
	for _, t := range all {
		if !f(t) {
			return
		}
	}
}
