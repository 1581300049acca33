package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/heraldmq/herald/topics/datafile"
)

// flusher is the store's goroutine that writes what was applied to the disk. It
// is started by Open and ended, after a last flush, by Close.
type flusher struct {
	s        *Store
	db       *stateDB
	next     uint64 // number of the next data file
	msgs     []cutMessage
	wake     chan struct{}
	requests chan *flushRequest
	stop     chan struct{}
	done     chan struct{}
	err      error        // why it ended; read after done
	fault    func() error // for tests: fails a write
}

// retryEvery is how long a flush that found no space waits before it tries
// again.
const retryEvery = time.Second

func (f *flusher) run() {
	defer close(f.done)
	var timer <-chan time.Time
	for {
		select {
		case <-f.stop:
			f.err = f.flush()
			return
		case r := <-f.requests:
			f.err = f.serve(r)
			timer = nil
		case <-f.wake:
			if f.s.urgent() {
				f.err = f.flush()
				timer = nil
			} else if timer == nil {
				timer = time.After(f.s.o.FlushInterval)
			}
		case <-timer:
			f.err = f.flush()
			timer = nil
		}
		if f.err != nil {
			if !errors.Is(f.err, ErrClosed) {
				f.s.o.Fatal(f.err)
			}
			return
		}
	}
}

// urgent tells whether a flush is due by bytes.
func (s *Store) urgent() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.unsaved >= s.o.FlushBytes
}

// Flush writes everything applied so far to the disk before it returns.
func (s *Store) Flush() error { return s.flusher.ask(&flushRequest{}) }

// flush makes one cut and writes it, for as long as that takes: without space it
// tries again until there is some or the store is closed. Every other error is
// for good.
func (f *flusher) flush() error {
	s := f.s
	s.mu.RLock()
	idle := s.applied == s.savedIndex && len(s.dirty) == 0 && len(s.deleted) == 0
	s.mu.RUnlock()
	if idle {
		return nil
	}
	c, err := s.takeCut(f.msgs, !s.urgent())
	if err != nil {
		return err
	}
	s.o.Before(c.applied)
	f.msgs = c.msgs[:0]
	stalled := false
	for {
		err = f.write(c)
		if err == nil || !noSpace(err) {
			break
		}
		if !stalled {
			stalled = true
			s.o.Log.Error("no space for a flush; trying again until there is", "dir", s.o.Dir, "err", err)
			s.o.Stalled(err)
		}
		c.giveUpCompaction(s)
		select {
		case <-f.stop:
			return fmt.Errorf("%w before a flush found space: %w", ErrClosed, err)
		case r := <-f.requests:
			switch {
			case r.replaces:
				return f.serve(r) // which does without what could not be written
			case r.idle:
				r.answer <- r.do()
			default:
				r.answer <- err
			}
		case <-time.After(retryEvery):
		}
	}
	if err != nil {
		return err
	}
	if stalled {
		s.o.Log.Info("flushing goes on", "dir", s.o.Dir)
		s.o.Stalled(nil)
	}
	s.o.Flushed(c.applied)
	return nil
}

// noSpace tells whether something failed for want of space. bbolt makes a text of the
// error when it can't make its file longer, which leaves that as it was; its MaxSize
// would be of no help, since what is free is not known before.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		err != nil && strings.Contains(err.Error(), "file resize error")
}

// giveUpCompaction leaves the old files as they are: rewriting them takes space.
func (c *cut) giveUpCompaction(s *Store) {
	if c.committed {
		return
	}
	for _, v := range c.victims {
		s.release(v)
	}
	c.victims = nil
	for i := range c.topics {
		c.topics[i].sources = nil
	}
}

// write puts a cut on the disk: the messages into a data file, the rest into
// state.db in one transaction, then the marker; and then in memory. When it is
// called again after an error it goes on with what is not done yet.
func (f *flusher) write(c *cut) (err error) {
	s := f.s
	if f.fault != nil {
		if err := f.fault(); err != nil {
			return err
		}
	}
	if !c.committed {
		if c.file, err = f.writeMessages(c); err != nil {
			return err
		}
		c.drop = slices.Clone(c.empty)
		for _, v := range c.victims {
			if !v.keep {
				c.drop = append(c.drop, v)
			}
		}
		if err = f.db.commit(c.applied, c.save); err != nil {
			if c.file != nil && noSpace(err) { // else the transaction may be there, and list the file
				err = errors.Join(err, c.file.Remove(), c.file.Release())
			}
			return err
		}
		c.committed = true
	}
	if err = f.db.mark(); err != nil {
		return err
	}
	s.install(c)
	for _, d := range c.drop {
		if err := d.Remove(); err != nil {
			s.o.Log.Warn("a data file that is not needed any more stays", "err", err)
		}
		s.release(d)
	}
	for _, v := range c.victims {
		s.release(v)
	}
	return nil
}

// writeMessages writes the cut's data file; nil if there is no message.
func (f *flusher) writeMessages(c *cut) (*dataFile, error) {
	sources := false
	for i := range c.topics {
		sources = sources || len(c.topics[i].sources) > 0
	}
	if len(c.msgs) == 0 && !sources {
		return nil, nil
	}
	number := f.next
	f.next++
	dir := filepath.Join(f.s.o.Dir, dataDir)
	w, err := datafile.Create(filepath.Join(dir, datafile.Name(number)), number)
	if err != nil {
		return nil, err
	}
	for i := range c.topics {
		if err := f.s.writeTopic(w, c, &c.topics[i]); err != nil {
			w.Abort()
			return nil, err
		}
	}
	file, err := w.Finish()
	if err != nil {
		return nil, err
	}
	if err := syncDir(dir); err != nil {
		return nil, errors.Join(err, file.Remove(), file.Release())
	}
	return newDataFile(file), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open folder to sync it: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return &datafile.SyncError{Err: fmt.Errorf("sync folder: %w", err)}
	}
	return nil
}

func (s *Store) writeTopic(w *datafile.Writer, c *cut, tc *topicCut) error {
	for i := range tc.sources {
		src := &tc.sources[i]
		if !src.joined || i > 0 && !tc.sources[i-1].moved {
			w.Cut()
		}
		if err := s.rewrite(w, tc.t, src); err != nil {
			return err
		}
	}
	if n := len(tc.sources); n > 0 && (!tc.joined || !tc.sources[n-1].moved) {
		w.Cut()
	}
	for _, m := range c.msgs[tc.from:tc.to] {
		sl := &c.slots[uint32(m.ref>>32)-uint32(c.base)]
		subj, header, payload := parts(sl.data, int(uint32(m.ref)))
		err := w.Add(tc.t.id, &datafile.Message{
			Sequence: m.seq, Time: sl.time, Expires: tc.expires[m.seq], Subject: subj, Header: header, Payload: payload,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rewrite copies the live messages of a run. One that is damaged stays where it
// is, and so does its file.
func (s *Store) rewrite(w *datafile.Writer, t *Topic, src *source) error {
	r := &src.run
	src.moved = false
	in := s.loadBlock(r)
	if in.err != nil {
		r.file.keep = true
		return nil
	}
	chunk, err := r.file.Chunk(r.info(), in.block)
	if err != nil || chunk.Damaged() {
		s.o.Log.Error("a damaged run is not rewritten", "file", r.file.Path(), "topic", t.id, "err", err)
		r.file.keep = true
		return nil
	}
	places, _ := src.live.places(in.block, nil, in.block.Len())
	for _, i := range places {
		m, err := chunk.Message(int(i))
		if err != nil {
			return err
		}
		err = w.Add(t.id, &datafile.Message{
			Sequence: m.Sequence, Time: m.Time, Expires: t.expiryOf(r, in.block, int(i)),
			Subject: []byte(m.Subject), Header: m.Header, Payload: m.Payload,
		})
		if err != nil {
			return err
		}
	}
	src.moved = true
	return nil
}

// save writes the cut into a transaction.
func (c *cut) save(tx *bolt.Tx) error {
	if err := errors.Join(c.chain.save(tx), c.saveProducers(tx)); err != nil {
		return err
	}
	files := tx.Bucket(bucketFiles)
	if file := c.file; file != nil {
		k := key64(file.Number())
		if err := files.Put(k, sealed(k, binary.LittleEndian.AppendUint64(nil, uint64(file.Length())))); err != nil {
			return err
		}
	}
	for _, d := range c.drop {
		if err := files.Delete(key64(d.Number())); err != nil {
			return err
		}
	}
	for _, id := range c.deleted {
		prefix := key64(uint64(id))
		for _, b := range [][]byte{bucketTopics, bucketDead, bucketIDs, bucketConsumers} {
			if err := deletePrefix(tx.Bucket(b), prefix, nil); err != nil {
				return err
			}
		}
	}
	for i := range c.topics {
		if tc := &c.topics[i]; tc.changed {
			if err := tc.save(tx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (tc *topicCut) save(tx *bolt.Tx) error {
	id := uint64(tc.t.id)
	k := key64(id)
	v, err := tc.record.append(nil)
	if err != nil {
		return err
	}
	if err := tx.Bucket(bucketTopics).Put(k, sealed(k, v)); err != nil {
		return err
	}
	dead := tx.Bucket(bucketDead)
	if err := deletePrefix(dead, k, key64(id, tc.deadBelow)); err != nil {
		return err
	}
	for i := range tc.dead {
		d := &tc.dead[i]
		k := key64(id, d.block)
		if d.n == 0 || d.block < tc.deadBelow {
			err = dead.Delete(k)
		} else {
			err = dead.Put(k, sealed(k, d.append(nil)))
		}
		if err != nil {
			return err
		}
	}
	if err := tc.saveIDs(tx.Bucket(bucketIDs)); err != nil {
		return err
	}
	consumers := tx.Bucket(bucketConsumers)
	for _, c := range tc.dropped {
		if err := consumers.Delete(key64(id, uint64(c))); err != nil {
			return err
		}
	}
	for _, c := range tc.consumers {
		k := key64(id, uint64(c.id))
		if err := consumers.Put(k, sealed(k, c.data)); err != nil {
			return err
		}
	}
	return nil
}

// saveIDs adds the new message ids, as one value, and drops the values whose ids
// are all past the window.
func (tc *topicCut) saveIDs(b *bolt.Bucket) error {
	id := uint64(tc.t.id)
	if len(tc.ids) > 0 {
		k := key64(id, tc.idsFrom)
		if err := b.Put(k, sealed(k, appendIDs(nil, tc.ids))); err != nil {
			return err
		}
	}
	c := b.Cursor()
	prefix := key64(id)
	var before []byte // a value ends where the next one starts
	var gone [][]byte
	for k, _ := c.Seek(prefix); len(k) == 16 && string(k[:8]) == string(prefix); k, _ = c.Next() {
		if binary.BigEndian.Uint64(k[8:]) > tc.record.idsGone {
			break
		}
		if before != nil {
			gone = append(gone, before)
		}
		before = append([]byte(nil), k...)
	}
	for _, k := range gone {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
