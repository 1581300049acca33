package store

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// endError is an error after which the files are not what memory says.
type endError struct{ error }

func (e *endError) Unwrap() error { return e.error }

// ErrOlder is returned by Adopt when the store has more than what it should take
// over.
var ErrOlder = errors.New("the store has more than that")

// Adopt replaces everything in the store by what another replica exported into the
// folder `from`. It first reads that as Open does: if anything is damaged, or if it is
// older than what the store has, the error says so and nothing has changed. Then it
// calls move, which must put the files into the store's folder, in place of what is
// there, and be durable and done when it returns: the error of move, and any later
// one, is fatal, and what is found at the next start is for move's owner to see to.
//
// Topics that were there and are there keep their *Topic; those that went are as if
// deleted. Readers see the one state or the other. Nothing may be applied meanwhile.
func (s *Store) Adopt(from string, move func() error) error {
	f := s.flusher
	err := f.ask(&flushRequest{replaces: true, do: func() error { return f.adopt(from, move) }})
	if err != nil {
		return fmt.Errorf("adopt the files of another replica in %s: %w", from, err)
	}
	return nil
}

func (f *flusher) adopt(from string, move func() error) error {
	s := f.s
	n, next, db, err := s.staged(from)
	if err != nil {
		return err
	}
	if n.applied < s.Applied() {
		return errors.Join(fmt.Errorf("%w: entry %d, and that ends with %d", ErrOlder, s.Applied(), n.applied), n.closeFiles())
	}
	if err := errors.Join(f.db.close(), move()); err != nil {
		return &endError{err}
	}
	here := &stateDB{path: f.db.path, marker: f.db.marker, generation: db.generation}
	if err := here.open(false); err != nil {
		return &endError{err}
	}
	for _, d := range n.files {
		d.Moved(filepath.Join(s.o.Dir, dataDir, datafile.Name(d.Number())))
	}
	f.db, f.next = here, next
	return s.become(n)
}

// staged reads the files of another replica.
func (s *Store) staged(from string) (n *Store, next uint64, db *stateDB, err error) {
	o := s.o
	o.Dir = from
	n = newStore(o)
	if db, err = openStateDB(from); err != nil {
		return nil, 0, nil, err
	}
	next, err = n.load(db)
	for _, damage := range n.damaged {
		err = errors.Join(err, damage)
	}
	if err = errors.Join(err, n.missing, db.close()); err != nil {
		return nil, 0, nil, errors.Join(err, n.closeFiles())
	}
	return n, next, db, nil
}

// become takes everything over from n, which is not used any more.
func (s *Store) become(n *Store) error {
	s.mu.Lock()
	old := s.files
	for id, t := range s.topics {
		if n.topics[id] == nil {
			t.vanish()
		}
	}
	for id, t := range n.topics {
		if here := s.topics[id]; here != nil {
			here.become(t)
			n.topics[id] = here
		} else {
			t.s = s
		}
	}
	s.topics, s.files, s.damaged, s.missing = n.topics, n.files, n.damaged, nil
	s.marks, s.emptied = n.marks, n.emptied
	s.applied, s.savedIndex = n.applied, n.applied
	s.tail, s.savedSlot, s.unsaved, s.flushes = tail{}, 0, 0, nil
	s.dirty, s.deleted, s.grown = nil, nil, nil
	s.producers, s.produceds = n.producers, nil
	s.armed, s.urged = false, false
	s.recent = [256]*Topic{}
	s.mu.Unlock()
	s.damage.mu.Lock()
	s.damage.first, s.damage.told = nil, false
	s.damage.mu.Unlock()
	for _, d := range old {
		s.release(d)
	}
	return nil
}

// vanish makes a topic one that is not there.
func (t *Topic) vanish() {
	t.messages, t.bytes, t.first, t.firstTime = 0, 0, t.last+1, 0
	t.runs, t.refs, t.dead = nil, refRing{}, deadSet{}
	t.subjects = subjectTable{histories: t.subjects.histories}
	t.dedupe, t.expiries, t.members, t.sources = nil, nil, nil, nil
	t.gone, t.dirty, t.marking, t.grew, t.summary = true, false, false, false, 0
	t.removed(1, t.last)
	t.forgetAllMatches()
}

// become takes over what another replica has of the topic.
func (t *Topic) become(n *Topic) {
	last := max(t.last, n.last)
	t.account, t.created, t.cfg = n.account, n.created, n.cfg
	t.messages, t.bytes, t.first, t.last = n.messages, n.bytes, n.first, n.last
	t.firstTime, t.lastTime, t.saved, t.lastMsgID = n.firstTime, n.lastTime, n.saved, n.lastMsgID
	t.runs, t.refs, t.dead, t.subjects = n.runs, n.refs, n.dead, n.subjects
	t.dedupe, t.expiries, t.members, t.sources = n.dedupe, n.expiries, n.members, n.sources
	t.gone, t.dirty, t.marking, t.grew, t.summary = false, false, false, false, 0
	t.move, t.arrived, t.fromFile = n.move, false, n.fromFile
	t.removed(1, topics.Sequence(last)) // whoever has counted counts again
	t.forgetAllMatches()
}
