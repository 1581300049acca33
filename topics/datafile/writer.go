package datafile

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/heraldmq/herald/topics"
)

const (
	magicStart = "HERALDR1"
	magicEnd   = "HERALDRE"
	headerSize = 24
	footerSize = 40
)

// Writer writes one file. Messages come sorted by topic and, within it, by
// sequence.
type Writer struct {
	output
	number uint64

	run    Run
	seed   uint32
	block  blockBuilder
	blocks []byte // of all runs so far; they are written after the records
	runs   []Run
}

// Create starts a file; the path must not exist.
func Create(path string, number uint64) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create data file: %w", err)
	}
	w := &Writer{number: number}
	w.init(f, path)
	w.buf = append(w.buf, magicStart...)
	w.buf = binary.LittleEndian.AppendUint64(w.buf, number)
	w.buf = append(w.buf, 0, 0, 0, 0)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, Checksum(0, w.buf))
	w.offset = headerSize
	return w, nil
}

// Add writes a message; it keeps nothing of m.
func (w *Writer) Add(topic topics.TopicID, m *Message) error {
	r := &w.run
	size := m.size()
	if r.Messages > 0 && (r.Topic != topic || r.Messages == RunMessages || int(r.Length)+size > RunBytes ||
		uint64(m.Sequence-r.First) > 1<<31) {
		w.Cut()
	}
	if r.Messages == 0 {
		if len(w.runs) == 0 || w.runs[len(w.runs)-1].Topic != topic {
			w.seed = seed(topic)
		}
		*r = Run{Topic: topic, First: m.Sequence, FirstTime: m.Time, Offset: w.offset}
	}
	r.Last, r.LastTime = m.Sequence, m.Time
	r.Length += uint32(size)
	r.Messages++
	w.block.add(m)
	w.buf = appendRecord(w.buf, w.seed, m)
	return w.added(size)
}

// Cut ends the current run: the next message starts another. Messages that
// others of the topic, in another file, lie between belong in different runs.
func (w *Writer) Cut() {
	r := &w.run
	if r.Messages == 0 {
		return
	}
	r.Headers, r.Expiring = w.block.headers, w.block.expiring
	r.block = int64(len(w.blocks))
	w.blocks = w.block.appendDictionary(w.blocks)
	r.dictionary = uint32(int64(len(w.blocks)) - r.block)
	w.blocks = w.block.appendColumns(w.blocks)
	r.columns = uint32(int64(len(w.blocks)) - r.block - int64(r.dictionary))
	w.runs = append(w.runs, *r)
	*r = Run{}
	w.block.reset()
}

// Finish writes the index, syncs the file and returns it opened for reading.
// The folder's entry is not synced. On an error the file is removed.
func (w *Writer) Finish() (*File, error) {
	w.Cut()
	blocks := w.offset
	for i := range w.runs {
		w.runs[i].block += blocks
	}
	err := w.append(w.blocks)
	directory := w.offset
	var tail []byte
	for i := range w.runs {
		tail = w.runs[i].append(tail)
	}
	if err == nil {
		err = w.append(tail)
	}
	if err == nil {
		err = w.flush()
	}
	content := w.sum
	footer := w.footer(directory, Checksum(0, tail))
	if err == nil {
		err = w.append(footer)
	}
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		if err = w.f.Sync(); err != nil {
			err = &SyncError{Err: fmt.Errorf("sync data file %s: %w", w.path, err)}
		}
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	f := &File{number: w.number, length: w.offset, content: content, sum: w.sum, f: w.f, Runs: w.runs}
	f.Moved(w.path)
	f.refs.Store(1)
	w.release()
	return f, nil
}

func (w *Writer) footer(directory int64, sum uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(directory))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(w.runs)))
	b = binary.LittleEndian.AppendUint32(b, sum)
	b = binary.LittleEndian.AppendUint64(b, w.number)
	b = binary.LittleEndian.AppendUint32(b, w.sum)
	b = binary.LittleEndian.AppendUint32(b, Checksum(0, b))
	return append(b, magicEnd...)
}

// Abort gives the file up and removes it.
func (w *Writer) Abort() {
	w.release()
	_ = w.f.Close()       // nothing of it is needed
	_ = os.Remove(w.path) // if it stays, the next open of the store removes it
}

// SyncError is a failed fsync: what the disk holds is unknown, and asking again
// would hide it. The process must not go on.
type SyncError struct{ Err error }

func (e *SyncError) Error() string { return e.Err.Error() }
func (e *SyncError) Unwrap() error { return e.Err }
