package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/consumer"
	"github.com/heraldmq/herald/topics/datafile"
)

// dataDir is the folder of the data files, in the store's.
const dataDir = "data"

// Open opens the store in o.Dir, which may be empty, and starts its flusher.
//
// What is damaged is kept apart: a topic whose state can't be read is in Damaged,
// a data file that can't be read costs its messages (a *CorruptError when they
// are read). Open itself fails with a *CorruptError when the state as a whole is
// not to be trusted: state.db is unreadable or is older than what was committed.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	s := newStore(o)
	if err := os.MkdirAll(filepath.Join(o.Dir, dataDir), 0o700); err != nil {
		return nil, fmt.Errorf("make the store's folder: %w", err)
	}
	db, err := openStateDB(o.Dir)
	if err != nil {
		return nil, err
	}
	next, err := s.load(db)
	if err == nil {
		err = db.writable()
	}
	if err != nil {
		return nil, errors.Join(err, s.closeFiles(), db.close())
	}
	s.flusher = &flusher{
		s: s, db: db, next: next,
		wake: make(chan struct{}, 1), requests: make(chan *flushRequest),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go s.flusher.run()
	return s, nil
}

func newStore(o Options) *Store {
	return &Store{
		o:       o,
		topics:  make(map[topics.TopicID]*Topic),
		files:   make(map[uint64]*dataFile),
		damaged: make(map[topics.TopicID]error),
		cache:   newBlockCache(o.CacheBytes),
		marks:   marks{all: true, known: true},

		producers: make(map[uint64]*producer),
	}
}

// Close makes a last flush and waits for the flusher. Nothing may be applied any
// more; readers get errors for what is not in memory.
func (s *Store) Close() error {
	select {
	case <-s.flusher.stop:
		return ErrClosed
	default:
	}
	close(s.flusher.stop)
	<-s.flusher.done
	return errors.Join(s.flusher.err, s.flusher.db.close(), s.closeFiles())
}

func (s *Store) closeFiles() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Release())
	}
	s.files = make(map[uint64]*dataFile)
	return errors.Join(errs...)
}

// load reads everything but messages, and returns the number of the next data
// file.
func (s *Store) load(db *stateDB) (next uint64, err error) {
	var listed map[uint64]int64
	s.records = make(map[topics.TopicID]topicRecord)
	defer func() { s.records = nil }()
	err = db.guard(func() error {
		if db.db == nil {
			return nil
		}
		return db.db.View(func(tx *bolt.Tx) (err error) {
			if s.applied, err = db.state(tx); err != nil || tx.Bucket(bucketMeta) == nil {
				return err
			}
			s.marks = marks{all: true}
			s.marks.load(tx, s.applied)
			if listed, err = s.loadFileList(db, tx); err != nil {
				return err
			}
			for _, l := range []func(*stateDB, *bolt.Tx) error{s.loadTopics, s.loadDead, s.loadIDs, s.loadConsumers, s.loadProducers} {
				if err := l(db, tx); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	s.savedIndex = s.applied
	for id, t := range s.topics {
		if r := s.records[id]; !t.agrees(&r) && s.damaged[id] == nil {
			s.damaged[id] = &CorruptError{File: db.path, Reason: fmt.Sprintf("parts of topic %d are missing", id)}
		}
	}
	for id, err := range s.damaged {
		delete(s.topics, id)
		s.o.Log.Error("a topic's state is damaged; the topic is refused", "topic", id, "err", err)
	}
	if next, err = s.openFiles(listed); err != nil {
		return 0, err
	}
	s.loadRuns()
	for _, t := range s.topics {
		t.dirty = false
	}
	s.dirty = nil
	return next, nil
}

// each calls f with the keys and values of a bucket. A damaged value is its
// topic's damage.
func (s *Store) each(db *stateDB, tx *bolt.Tx, bucket []byte, f func(t *Topic, id, sub uint64, v []byte) bool) error {
	return tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		if len(k) < 8 {
			return db.corrupt(bucket, k, "key")
		}
		id, sub := binary.BigEndian.Uint64(k), uint64(0)
		if len(k) == 16 {
			sub = binary.BigEndian.Uint64(k[8:])
		}
		body, ok := unseal(k, v)
		if ok {
			ok = f(s.topics[topics.TopicID(id)], id, sub, body)
		}
		if !ok && s.damaged[topics.TopicID(id)] == nil {
			s.damaged[topics.TopicID(id)] = db.corrupt(bucket, k, "checksum or content")
		}
		return nil
	})
}

func (s *Store) loadFileList(db *stateDB, tx *bolt.Tx) (map[uint64]int64, error) {
	listed := make(map[uint64]int64)
	err := tx.Bucket(bucketFiles).ForEach(func(k, v []byte) error {
		body, ok := unseal(k, v)
		if !ok || len(body) != 8 || len(k) != 8 {
			return db.corrupt(bucketFiles, k, "checksum or content")
		}
		listed[binary.BigEndian.Uint64(k)] = int64(binary.LittleEndian.Uint64(body))
		return nil
	})
	return listed, err
}

func (s *Store) loadTopics(db *stateDB, tx *bolt.Tx) error {
	return s.each(db, tx, bucketTopics, func(_ *Topic, id, _ uint64, v []byte) bool {
		r, ok := decodeTopicRecord(v)
		if !ok {
			return false
		}
		t := newTopic(s, topics.TopicID(id), r.account, *r.cfg, r.created)
		t.messages, t.bytes, t.first, t.last = r.messages, r.bytes, r.first, r.last
		t.firstTime, t.lastTime, t.lastMsgID = r.firstTime, r.lastTime, r.lastMsgID
		t.saved, t.sources = r.last, r.sources
		t.move, t.fromFile = r.move, r.fromFile
		if r.lastConsumer > 0 {
			t.members = newConsumers()
			t.members.lastID = r.lastConsumer
		}
		if r.idsEnd > 0 {
			t.dedupe = newDedupe()
			t.dedupe.gone, t.dedupe.saved = r.idsGone, r.idsGone
		}
		s.topics[t.id], s.records[t.id] = t, r
		return true
	})
}

// agrees tells whether what was loaded of a topic is as much as was written.
func (t *Topic) agrees(r *topicRecord) bool {
	consumers, end := uint64(0), uint64(0)
	if t.members != nil {
		consumers = uint64(len(t.members.byID))
	}
	if d := t.dedupe; d != nil {
		end = d.saved
	}
	return t.messages+t.dead.total == uint64(t.last+1-t.first) && consumers == r.consumers && end == r.idsEnd
}

func (s *Store) loadDead(db *stateDB, tx *bolt.Tx) error {
	err := s.each(db, tx, bucketDead, func(t *Topic, _, block uint64, v []byte) bool {
		d, ok := decodeDead(v)
		d.block = block
		if ok && t != nil && block >= uint64(t.first)>>blockBits && block <= uint64(t.last)>>blockBits {
			t.dead.load(d)
		}
		return ok
	})
	for _, t := range s.topics {
		t.dead.trim(t.first)
		for i := range t.dead.blocks {
			t.dead.blocks[i].dirty = false
		}
	}
	return err
}

func (s *Store) loadIDs(db *stateDB, tx *bolt.Tx) error {
	return s.each(db, tx, bucketIDs, func(t *Topic, _, ordinal uint64, v []byte) bool {
		ids, ok := decodeIDs(v)
		if !ok || t == nil {
			return ok
		}
		if t.dedupe == nil {
			t.dedupe = newDedupe()
		}
		d := t.dedupe
		for _, e := range ids {
			if ordinal >= d.gone {
				d.add(e)
			}
			ordinal++
		}
		d.saved = max(d.saved, ordinal)
		return d.saved == d.gone+uint64(len(d.queue))
	})
}

func (s *Store) loadConsumers(db *stateDB, tx *bolt.Tx) error {
	return s.each(db, tx, bucketConsumers, func(t *Topic, _, _ uint64, v []byte) bool {
		if t == nil {
			return true
		}
		c, err := consumer.Unmarshal(v)
		if err != nil || t.members == nil {
			return false
		}
		t.adopt(&member{c: c})
		return true
	})
}

// openFiles opens the listed data files and removes the others: those were being
// written, or no longer needed, when the process ended.
func (s *Store) openFiles(listed map[uint64]int64) (next uint64, err error) {
	dir := filepath.Join(s.o.Dir, dataDir)
	found, err := datafile.Numbers(dir)
	if err != nil {
		return 0, err
	}
	next = 1
	for _, n := range found {
		next = max(next, n+1)
		if _, ok := listed[n]; !ok {
			if err := os.Remove(filepath.Join(dir, datafile.Name(n))); err != nil {
				return 0, fmt.Errorf("remove a data file that belongs to no flush: %w", err)
			}
		}
	}
	for n, length := range listed {
		next = max(next, n+1)
		f, err := datafile.Open(filepath.Join(dir, datafile.Name(n)), n, length)
		var damage *CorruptError
		if errors.As(err, &damage) {
			s.o.Log.Error("a data file is damaged; its messages are refused", "err", err)
			s.missing = err
			continue
		}
		if err != nil {
			return 0, err
		}
		s.files[n] = newDataFile(f)
	}
	return next, nil
}

// loadRuns gives the topics their runs, and makes from the runs' indexes what is
// only in memory: the subjects and the times messages have of their own.
func (s *Store) loadRuns() {
	for _, f := range s.files {
		for i := range f.Runs {
			in := &f.Runs[i]
			t := s.topics[in.Topic]
			if t == nil {
				if s.damaged[in.Topic] != nil { // may yet be repaired
					f.live += uint64(in.Messages)
					f.keep = true
				}
				continue
			}
			if f.Number() < t.fromFile {
				continue // of an earlier stay in this group
			}
			r := run{file: f, i: int32(i), first: in.First, last: in.Last}
			if live := t.liveIn(&r); live > 0 {
				t.runs = append(t.runs, r)
				f.live += live
			}
		}
	}
	for _, t := range s.topics {
		slices.SortFunc(t.runs, func(a, b run) int { return compareSequences(a.first, b.first) })
		found := uint64(0)
		for i := range t.runs {
			r := &t.runs[i]
			live := t.liveIn(r)
			found += live
			if err := t.index(r, live); err != nil {
				s.o.Log.Error("messages can't be read", "topic", t.id, "first", r.first, "last", r.last, "err", err)
				s.missing = err
			}
		}
		if found != t.messages {
			s.missing = cmp.Or(s.missing, t.lostError(t.first))
			s.o.Log.Error("messages are missing from the data files", "topic", t.id, "held", found, "stored", t.messages)
		}
	}
	for _, f := range s.files {
		s.emptied = s.emptied || f.live == 0
	}
}

// index counts a run's live messages into the subjects. The dictionary is enough
// for a dense run of which nothing died.
func (t *Topic) index(r *run, live uint64) error {
	in := r.info()
	if live == uint64(in.Messages) && uint64(in.Last-in.First)+1 == live && !in.Expiring && !t.subjects.histories {
		subjects, err := r.file.Dictionary(in)
		if err == nil {
			for _, sub := range subjects {
				t.subjects.addRun(sub.Name, in.First+topics.Sequence(sub.First), in.First+topics.Sequence(sub.Last), uint64(sub.Count))
			}
			return nil
		}
	}
	loaded := t.s.loadBlock(r)
	if loaded.err != nil {
		return loaded.err
	}
	block := loaded.block
	slots := make([]uint32, len(block.Subjects))
	for i := range block.Len() {
		seq := block.Sequence(i)
		if !t.alive(seq) {
			continue
		}
		at := block.Subject(i)
		if slots[at] == 0 {
			sub, _ := t.subjects.add(block.Subjects[at].Name, seq)
			slots[at] = sub + 1
		} else {
			t.subjects.addAt(slots[at]-1, seq)
		}
		if in.Expiring {
			if at := t.expiryOf(r, block, i); at != 0 {
				t.schedule(seq, at)
			}
		}
	}
	return nil
}

// expiryOf returns when a message goes by a time of its own. An index that was
// made again from the records doesn't know: then the message's header does.
func (t *Topic) expiryOf(r *run, block *datafile.Block, i int) topics.Nanos {
	if !block.Rebuilt() {
		return block.Expires(i)
	}
	m, err := r.file.Message(r.info(), block, i)
	if err != nil {
		return 0
	}
	ttl, ok := parseTTL(parseHeaders(m.Header).ttl)
	switch {
	case !ok || ttl == 0:
		return 0
	case ttl >= never-m.Time:
		return never
	}
	return m.Time + ttl
}
