package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// scrubKeys is how many keys of state.db one look at it reads.
const scrubKeys = 1024

// Scrub reads everything the store has on the disk and verifies every checksum. It
// calls pace before it reads so many bytes, and ends with its error. Damage is
// reported, given to found, and doesn't end it. It may be called at any time, also
// beside the application of entries; one at a time.
func (s *Store) Scrub(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error {
	report := func(err error) {
		s.o.Log.Error("scrubbing found damage", "err", err)
		s.ReportDamage(err)
		found(err)
	}
	s.mu.RLock()
	for _, err := range s.damaged {
		defer found(err)
	}
	missing := s.missing
	files := make([]*dataFile, 0, len(s.files))
	for _, d := range s.files {
		d.Retain()
		files = append(files, d)
	}
	s.mu.RUnlock()
	if missing != nil {
		found(missing)
	}
	var err error
	for _, d := range files {
		if err == nil {
			err = d.Verify(func(n int64) error { return pace(ctx, n) }, report)
		}
		s.release(d)
	}
	if err == nil {
		err = s.scrubState(ctx, pace, report)
	}
	if err != nil {
		return fmt.Errorf("scrub %s: %w", s.o.Dir, err)
	}
	return nil
}

// VerifyFile reads a data file and verifies it; nil if there is none of that name. The
// error is the damage, which is reported.
func (s *Store) VerifyFile(ctx context.Context, name string) error {
	s.mu.RLock()
	var file *dataFile
	for _, d := range s.files {
		if filepath.Base(d.Path()) == name {
			file = d
			file.Retain()
		}
	}
	s.mu.RUnlock()
	if file == nil {
		return nil
	}
	defer s.release(file)
	var damage error
	err := file.Verify(func(int64) error { return ctx.Err() }, func(err error) { damage = err })
	s.ReportDamage(damage)
	return errors.Join(err, damage)
}

// scrubState looks at all keys of state.db, some at a time, on the flusher's
// goroutine.
func (s *Store) scrubState(ctx context.Context, pace func(ctx context.Context, bytes int64) error, found func(error)) error {
	var at stateCursor
	for !at.done {
		at.bytes = 0
		err := s.flusher.ask(&flushRequest{idle: true, do: func() error { return s.flusher.db.scrub(&at) }})
		var damage *CorruptError
		if errors.As(err, &damage) {
			found(err)
			return nil
		}
		if err != nil {
			return err
		}
		if err := pace(ctx, at.bytes); err != nil {
			return err
		}
	}
	return nil
}

// stateCursor is how far a look at state.db has come.
type stateCursor struct {
	bucket int
	key    []byte // the last that was looked at
	bytes  int64
	done   bool
}

func (d *stateDB) scrub(at *stateCursor) error {
	if d.db == nil {
		at.done = true
		return nil
	}
	return d.guard(func() error {
		return d.db.View(func(tx *bolt.Tx) error {
			if _, err := d.state(tx); err != nil {
				return err
			}
			for n := 0; n < scrubKeys; n++ {
				more, err := d.scrubKey(tx, at)
				if err != nil || !more {
					return err
				}
			}
			return nil
		})
	})
}

// scrubKey looks at the next key.
func (d *stateDB) scrubKey(tx *bolt.Tx, at *stateCursor) (more bool, err error) {
	if at.bucket == len(buckets) {
		at.done = true
		return false, nil
	}
	bucket := tx.Bucket(buckets[at.bucket])
	if bucket == nil {
		at.bucket, at.key = at.bucket+1, nil
		return true, nil
	}
	c := bucket.Cursor()
	k, v := c.Seek(at.key)
	if at.key != nil && string(k) == string(at.key) {
		k, v = c.Next()
	}
	if k == nil {
		at.bucket, at.key = at.bucket+1, nil
		return true, nil
	}
	if _, ok := unseal(k, v); !ok {
		return false, d.corrupt(buckets[at.bucket], k, "checksum")
	}
	at.key = append(at.key[:0], k...)
	at.bytes += int64(len(k) + len(v))
	return true, nil
}
