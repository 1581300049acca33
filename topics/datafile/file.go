package datafile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/heraldmq/herald/topics"
)

// File is a data file opened for reading. It is safe for any number of callers.
// It is closed when the last of those who hold it has released it.
type File struct {
	path    atomic.Pointer[string]
	number  uint64
	length  int64
	content uint32 // checksum of all before the footer, 0 when it is not known
	sum     uint32 // of the whole file, if content is known
	f       *os.File
	refs    atomic.Int64

	Runs []Run // sorted by topic and sequence; never changed
}

// Open opens a file and reads its directory. number and length are what its
// writer reported.
func Open(path string, number uint64, length int64) (*File, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &CorruptError{File: path, Reason: "the file is gone"}
	}
	if err != nil {
		return nil, fmt.Errorf("open data file: %w", err)
	}
	d := &File{number: number, length: length, f: f}
	d.Moved(path)
	d.refs.Store(1)
	if d.Runs, err = d.readDirectory(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

func (d *File) corrupt(offset int64, format string, args ...any) error {
	return &CorruptError{File: d.Path(), Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

func (d *File) readDirectory() ([]Run, error) {
	st, err := d.f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat data file: %w", err)
	}
	if st.Size() != d.length || d.length < headerSize+footerSize {
		return nil, d.corrupt(min(st.Size(), d.length), "it has %d bytes and had %d", st.Size(), d.length)
	}
	foot := make([]byte, footerSize)
	at := d.length - footerSize
	if err := d.read(foot, at); err != nil {
		return nil, err
	}
	directory, runs := int64(binary.LittleEndian.Uint64(foot)), int64(binary.LittleEndian.Uint32(foot[8:]))
	if binary.LittleEndian.Uint32(foot[28:]) != Checksum(0, foot[:28]) || string(foot[32:]) != magicEnd {
		return nil, d.corrupt(at, "footer checksum")
	}
	if n := binary.LittleEndian.Uint64(foot[16:]); n != d.number {
		return nil, d.corrupt(at, "it is file %d and should be %d", n, d.number)
	}
	if directory < headerSize || directory > at || at-directory != runs*runSize {
		return nil, d.corrupt(at, "footer with a directory of %d runs at %d", runs, directory)
	}
	if d.content = binary.LittleEndian.Uint32(foot[24:]); d.content != 0 {
		d.sum = Checksum(d.content, foot)
	}
	b := make([]byte, at-directory)
	if err := d.read(b, directory); err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(foot[12:]) != Checksum(0, b) {
		return nil, d.corrupt(directory, "directory checksum")
	}
	all := make([]Run, runs)
	for i := range all {
		all[i] = decodeRun(b[i*runSize:])
		if !all[i].plausible(directory) {
			return nil, d.corrupt(directory+int64(i)*runSize, "directory entry that can't be")
		}
	}
	return all, nil
}

func (d *File) read(b []byte, at int64) error {
	n, err := d.f.ReadAt(b, at)
	if err == nil || n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return d.corrupt(at+int64(n), "the file ends here")
	}
	return fmt.Errorf("read %d bytes of data file %s at %d: %w", len(b), d.Path(), at, err)
}

// Number returns the file's number.
func (d *File) Number() uint64 { return d.number }

// Length returns the file's size.
func (d *File) Length() int64 { return d.length }

// Path returns where the file is.
func (d *File) Path() string { return *d.path.Load() }

// Moved says where the file is now.
func (d *File) Moved(path string) { d.path.Store(&path) }

// Retain keeps the file open until Release. The caller must know that someone
// holds it.
func (d *File) Retain() { d.refs.Add(1) }

// Release gives a hold back.
func (d *File) Release() error {
	if d.refs.Add(-1) == 0 {
		return d.f.Close()
	}
	return nil
}

// Remove takes the file out of its folder; those who hold it can go on reading.
func (d *File) Remove() error {
	if err := os.Remove(d.Path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove data file: %w", err)
	}
	return nil
}

// Dictionary reads the subjects of a run.
func (d *File) Dictionary(r *Run) ([]Subject, error) {
	b := make([]byte, r.dictionary)
	if err := d.read(b, r.block); err != nil {
		return nil, err
	}
	subjects, ok := decodeDictionary(b, int(r.Messages))
	if !ok {
		return nil, d.corrupt(r.block, "dictionary of a run of topic %d from %d", r.Topic, r.First)
	}
	return subjects, nil
}

// Block reads the index of a run.
func (d *File) Block(r *Run) (*Block, error) {
	b := make([]byte, r.dictionary+r.columns)
	if err := d.read(b, r.block); err != nil {
		return nil, err
	}
	block := &Block{}
	var ok bool
	if block.Subjects, ok = decodeDictionary(b[:r.dictionary], int(r.Messages)); !ok {
		return nil, d.corrupt(r.block, "dictionary of a run of topic %d from %d", r.Topic, r.First)
	}
	if !decodeColumns(b[r.dictionary:], r, block) {
		return nil, d.corrupt(r.block+int64(r.dictionary), "index of a run of topic %d from %d", r.Topic, r.First)
	}
	return block, nil
}

// Message reads one message of a run.
func (d *File) Message(r *Run, block *Block, i int) (topics.Message, error) {
	from, to := block.span(i)
	b := make([]byte, to-from)
	at := r.Offset + int64(from)
	if err := d.read(b, at); err != nil {
		return topics.Message{}, err
	}
	m, ok := decodeRecord(b, seed(r.Topic))
	if !ok || m.Sequence != block.Sequence(i) {
		return topics.Message{}, d.corrupt(at, "message %d of topic %d", block.Sequence(i), r.Topic)
	}
	return m, nil
}

// Chunk is the records of a whole run, verified. It is immutable.
type Chunk struct {
	data  []byte
	block *Block
	bad   []int // places of the damaged, sorted
	file  *File
	run   *Run
}

// Chunk reads all records of a run in one go. Damaged ones are known to the
// chunk; the others are served.
func (d *File) Chunk(r *Run, block *Block) (*Chunk, error) {
	c := &Chunk{data: make([]byte, r.Length), block: block, file: d, run: r}
	if err := d.read(c.data, r.Offset); err != nil {
		return nil, err
	}
	start := seed(r.Topic)
	for i := range block.n {
		from, to := block.span(i)
		b := c.data[from:to:to]
		if recordSize(b) != int64(len(b)) || binary.LittleEndian.Uint32(b) != Checksum(start, b[4:]) ||
			topics.Sequence(binary.LittleEndian.Uint64(b[14:])) != block.Sequence(i) {
			c.bad = append(c.bad, i)
		}
	}
	return c, nil
}

// Bytes returns about how much memory the chunk takes, its block excluded.
func (c *Chunk) Bytes() int64 { return int64(len(c.data)) + 96 }

// Damaged tells whether some of the chunk's messages can't be served.
func (c *Chunk) Damaged() bool { return len(c.bad) > 0 }

// Message returns the message at a place; it aliases the chunk.
func (c *Chunk) Message(i int) (topics.Message, error) {
	from, to := c.block.span(i)
	for _, b := range c.bad {
		if b == i {
			return topics.Message{}, c.file.corrupt(c.run.Offset+int64(from), "message %d of topic %d", c.block.Sequence(i), c.run.Topic)
		}
	}
	return sliceRecord(c.data[from:to:to]), nil
}

// Rebuild makes the index of a run from its records, for when the block is
// damaged. It fails where a record is damaged too.
func (d *File) Rebuild(r *Run) (*Block, error) {
	data := make([]byte, r.Length)
	if err := d.read(data, r.Offset); err != nil {
		return nil, err
	}
	var w blockBuilder
	start := seed(r.Topic)
	for off := int64(0); off < int64(len(data)); {
		size := recordSize(data[off:])
		if size == 0 || off+size > int64(len(data)) {
			return nil, d.corrupt(r.Offset+off, "index and record of topic %d", r.Topic)
		}
		m, ok := decodeRecord(data[off:off+size:off+size], start)
		if !ok || m.Sequence < r.First || m.Sequence > r.Last || w.block.n == RunMessages {
			return nil, d.corrupt(r.Offset+off, "index and record of topic %d", r.Topic)
		}
		w.add(&Message{Sequence: m.Sequence, Time: m.Time, Subject: []byte(m.Subject), Header: m.Header, Payload: m.Payload})
		off += size
	}
	if w.block.n != int(r.Messages) {
		return nil, d.corrupt(r.Offset, "%d records of topic %d where %d were", w.block.n, r.Topic, r.Messages)
	}
	b := w.block
	b.expires, b.rebuilt = nil, true
	return &b, nil
}

// Name returns the file name of a number.
func Name(number uint64) string { return fmt.Sprintf("%016x.run", number) }

// Numbers returns the numbers of the data files in a folder.
func Numbers(dir string) ([]uint64, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.run"))
	if err != nil {
		return nil, fmt.Errorf("list data files: %w", err)
	}
	var numbers []uint64
	for _, name := range names {
		var n uint64
		if _, err := fmt.Sscanf(filepath.Base(name), "%016x.run", &n); err == nil && filepath.Base(name) == Name(n) {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
