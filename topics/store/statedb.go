package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/heraldmq/herald/topics"
	"github.com/heraldmq/herald/topics/datafile"
)

// The buckets of state.db. Numbers in keys are big-endian; every value ends with
// the CRC-32C of its key and the rest of it.
//
//	meta       "state" → version u8, generation u64, applied index u64, and the
//	           census of files and topics: the number of keys and their sum, u64 each
//	files      file number → length u64
//	topics     topic → see topicRecord
//	dead       topic, block → see appendDead
//	ids        topic, ordinal → message ids, from that ordinal on
//	consumers  topic, consumer → consumer.AppendBinary
//	producers  producer → see producer.append
var (
	bucketMeta      = []byte("meta")
	bucketFiles     = []byte("files")
	bucketTopics    = []byte("topics")
	bucketDead      = []byte("dead")
	bucketIDs       = []byte("ids")
	bucketConsumers = []byte("consumers")
	bucketProducers = []byte("producers")
	buckets         = [][]byte{bucketMeta, bucketFiles, bucketTopics, bucketDead, bucketIDs, bucketConsumers, bucketProducers}

	keyState = []byte("state")
)

const (
	stateVersion = 1
	stateSize    = 17 + 32
)

// appendCensus appends the number of files and topics and the sums of their keys.
func appendCensus(dst []byte, tx *bolt.Tx) []byte {
	for _, name := range [][]byte{bucketFiles, bucketTopics} {
		var n, sum uint64
		c := tx.Bucket(name).Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			n++
			for _, b := range k {
				sum = sum*31 + uint64(b)
			}
		}
		dst = binary.LittleEndian.AppendUint64(dst, n)
		dst = binary.LittleEndian.AppendUint64(dst, sum)
	}
	return dst
}

// stateDB is the file of everything but messages. It notices that it went back
// in time: each commit raises the generation, and a marker file of its own, synced
// after the commit and before anyone relies on it, holds the last one.
type stateDB struct {
	path       string
	marker     string
	db         *bolt.DB
	generation uint64
}

// openStateDB opens the state.db of a folder for reading, so that all of it can
// be looked at, by guard, before bbolt follows its pages on goroutines of its
// own: a fault there could not be caught. writable then opens it for good. There
// is no file, and db is nil, before the first commit.
func openStateDB(dir string) (*stateDB, error) {
	d := &stateDB{path: filepath.Join(dir, "state.db"), marker: filepath.Join(dir, "generation")}
	marked, err := d.readMarker()
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(d.path)
	if err == nil && st.Size() > 0 {
		if err = d.open(true); err == nil || marked > 0 {
			return d, err
		}
	}
	if marked > 0 {
		return nil, &CorruptError{File: d.path, Reason: fmt.Sprintf("the file is gone or empty, and generation %d was committed", marked)}
	}
	// Nothing was ever committed: what is there is of a crash in the first commit.
	if err := os.Remove(d.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an unfinished %s: %w", d.path, err)
	}
	return d, nil
}

// writable opens the file for writing, once it was read and found whole.
func (d *stateDB) writable() error {
	if d.db == nil {
		return nil
	}
	if err := d.close(); err != nil {
		return fmt.Errorf("close %s to open it for writing: %w", d.path, err)
	}
	return d.open(false)
}

func (d *stateDB) open(readOnly bool) error {
	return d.guard(func() error {
		db, err := bolt.Open(d.path, 0o600, &bolt.Options{
			Timeout: time.Second, ReadOnly: readOnly, NoFreelistSync: true, FreelistType: bolt.FreelistMapType,
		})
		if err != nil {
			if errors.Is(err, os.ErrPermission) || errors.Is(err, bolterrors.ErrTimeout) || noSpace(err) {
				return fmt.Errorf("open %s: %w", d.path, err)
			}
			return &CorruptError{File: d.path, Reason: err.Error()}
		}
		d.db = db
		return nil
	})
}

// guard turns what bbolt does with a damaged file, a panic or a fault on the
// mapped pages, into an error.
func (d *stateDB) guard(f func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if p := recover(); p != nil {
			err = &CorruptError{File: d.path, Reason: fmt.Sprint(p)}
		}
	}()
	return f()
}

func (d *stateDB) corrupt(bucket, key []byte, what string) error {
	return &CorruptError{File: d.path, Reason: fmt.Sprintf("%s of %s %x", what, bucket, key)}
}

// sealed appends its checksum to a value.
func sealed(key, value []byte) []byte {
	return binary.LittleEndian.AppendUint32(value, datafile.Checksum(datafile.Checksum(0, key), value))
}

// unseal returns a value without its checksum, if that is right.
func unseal(key, value []byte) ([]byte, bool) {
	if len(value) < 4 {
		return nil, false
	}
	body := value[:len(value)-4]
	sum := binary.LittleEndian.Uint32(value[len(body):])
	return body, sum == datafile.Checksum(datafile.Checksum(0, key), body)
}

func key64(parts ...uint64) []byte {
	k := make([]byte, 0, 16)
	for _, p := range parts {
		k = binary.BigEndian.AppendUint64(k, p)
	}
	return k
}

// state reads the generation and applied index, and compares the generation with
// the marker.
func (d *stateDB) state(tx *bolt.Tx) (applied topics.Index, err error) {
	marked, err := d.readMarker()
	if err != nil {
		return 0, err
	}
	var value []byte
	if b := tx.Bucket(bucketMeta); b != nil {
		if v := b.Get(keyState); v != nil {
			var ok bool
			if value, ok = unseal(keyState, v); ok && len(value) > 0 && value[0] > stateVersion {
				return 0, &datafile.NewerError{File: d.path, Version: uint32(value[0]), Reads: stateVersion}
			}
			if !ok || len(value) != stateSize || value[0] != stateVersion {
				return 0, d.corrupt(bucketMeta, keyState, "checksum or version")
			}
			if string(appendCensus(nil, tx)) != string(value[17:]) {
				return 0, &CorruptError{File: d.path, Reason: "the keys of the files or topics are not those that were written"}
			}
			d.generation = binary.LittleEndian.Uint64(value[1:])
			applied = topics.Index(binary.LittleEndian.Uint64(value[9:]))
		}
	}
	if d.generation < marked {
		return 0, &CorruptError{File: d.path, Reason: fmt.Sprintf("it is of generation %d, and %d was committed", d.generation, marked)}
	}
	return applied, nil
}

const markerSize = 24 // magic, generation, crc and 4 bytes of nothing

// readMarker returns the last generation known to be committed. The marker has
// two places, written in turn, so that a torn write loses the newest only.
func (d *stateDB) readMarker() (uint64, error) {
	b, err := os.ReadFile(d.marker)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read generation marker: %w", err)
	}
	best, found := uint64(0), false
	for ; len(b) >= markerSize; b = b[markerSize:] {
		if string(b[:8]) == "HERALDGN" && binary.LittleEndian.Uint32(b[16:]) == datafile.Checksum(0, b[:16]) {
			best, found = max(best, binary.LittleEndian.Uint64(b[8:])), true
		}
	}
	if !found {
		return 0, &CorruptError{File: d.marker, Reason: "neither of its places is readable"}
	}
	return best, nil
}

func encodeMarker(generation uint64) []byte {
	b := append(make([]byte, 0, markerSize), "HERALDGN"...)
	b = binary.LittleEndian.AppendUint64(b, generation)
	b = binary.LittleEndian.AppendUint32(b, datafile.Checksum(0, b))
	return append(b, 0, 0, 0, 0)
}

// mark writes and syncs the marker.
func (d *stateDB) mark() error {
	_, missing := os.Stat(d.marker)
	f, err := os.OpenFile(d.marker, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open generation marker: %w", err)
	}
	_, err = f.WriteAt(encodeMarker(d.generation), int64(d.generation%2)*markerSize)
	if err == nil {
		if e := f.Sync(); e != nil {
			err = &datafile.SyncError{Err: e}
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write generation marker: %w", err)
	}
	if missing != nil { // the first time: the names of all files must last, too
		dir := filepath.Dir(d.path)
		return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
	}
	return nil
}

// commit runs write in a transaction that raises the generation. After a failure
// the database is opened again, for its memory may not be what the file holds. If
// the file then shows the transaction, a sync has failed: nobody knows what the
// disk holds, and the error is not one of those that are tried again.
func (d *stateDB) commit(applied topics.Index, write func(tx *bolt.Tx) error) error {
	next := d.generation + 1
	if d.db == nil {
		if err := d.open(false); err != nil {
			return err
		}
	}
	err := d.guard(func() error {
		return d.db.Update(func(tx *bolt.Tx) error {
			for _, b := range buckets {
				if _, err := tx.CreateBucketIfNotExists(b); err != nil {
					return err
				}
			}
			if err := write(tx); err != nil {
				return err
			}
			v := binary.LittleEndian.AppendUint64([]byte{stateVersion}, next)
			v = binary.LittleEndian.AppendUint64(v, uint64(applied))
			v = appendCensus(v, tx)
			return tx.Bucket(bucketMeta).Put(keyState, sealed(keyState, v))
		})
	})
	if err == nil {
		d.generation = next
		return nil
	}
	again := d.reopen()
	if again != nil || d.generation == next {
		return fmt.Errorf("commit to %s: it is not known whether generation %d is on the disk: %v", d.path, next, errors.Join(err, again))
	}
	return fmt.Errorf("commit to %s: %w", d.path, err)
}

func (d *stateDB) reopen() error {
	err := d.close()
	d.db = nil
	if e := d.open(false); e != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, d.guard(func() error {
		return d.db.View(func(tx *bolt.Tx) error {
			_, err := d.state(tx)
			return err
		})
	}))
}

func (d *stateDB) close() error {
	if d.db == nil {
		return nil
	}
	return d.guard(d.db.Close)
}

// deletePrefix deletes the keys that start with prefix and are below end (nil:
// all of them).
func deletePrefix(b *bolt.Bucket, prefix, end []byte) error {
	var keys [][]byte
	c := b.Cursor()
	for k, _ := c.Seek(prefix); k != nil && len(k) >= len(prefix) && string(k[:len(prefix)]) == string(prefix); k, _ = c.Next() {
		if end != nil && string(k) >= string(end) {
			break
		}
		keys = append(keys, append([]byte(nil), k...))
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
