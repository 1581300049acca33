package state

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Journal is a Memory whose contents last. Apply only notes what has changed; Flush
// appends that to a file, which is written anew, as a whole, when it has become more than
// twice as long as what it holds. After a crash it has what was flushed, or more: always
// the state after some step.
//
//	file   any number of frames; the first ones are all there was when it was written
//	frame  length u32, CRC-32C u32, epoch u64, seq u64, delta
//
// Flush and Close are called by any goroutine, the rest as Store says.
type Journal struct {
	*Memory
	dir string

	mu      sync.Mutex // of what follows; never held with Memory's
	epoch   uint64
	pending []byte // frames that are not in the file yet
	whole   bool   // the file is to be written anew
	file    *os.File
	length  int64
	flushed uint64 // the step up to which the file has everything
	gone    bool   // it was removed
}

var _ Store = (*Journal)(nil)

const (
	frameHead  = 24
	chunkBytes = 256 << 10
	// rewriteAbove is how long a file may be whatever it holds.
	rewriteAbove = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const journalFile = "state"

func journalName(dir string) string { return filepath.Join(dir, journalFile) }

// OpenJournal opens what a folder holds, which it makes. What can't be read at the end of
// the file, as a crash leaves it, is cut off.
func OpenJournal(dir string) (*Journal, error) {
	if err := makeFolder(vfs.Default, dir); err != nil {
		return nil, err
	}
	j := &Journal{Memory: NewMemory(), dir: dir}
	f, err := os.OpenFile(journalName(dir), os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		j.whole = true
		return j, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open an operator's state: %w", err)
	}
	j.file = f
	if j.epoch, j.length, err = ReadFrames(bufio.NewReaderSize(f, 1<<20), j.Memory); err == nil {
		err = f.Truncate(j.length)
	}
	if err == nil {
		_, err = f.Seek(j.length, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", f.Name(), err), f.Close())
	}
	j.flushed = j.Memory.Seq()
	return j, nil
}

// Epoch returns the epoch that the state is of, 0 where there is none.
func (j *Journal) Epoch() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epoch
}

// Flushed returns the step up to which the files hold everything.
func (j *Journal) Flushed() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flushed
}

// Apply implements Store.
func (j *Journal) Apply(delta []byte, seq uint64) error {
	if err := j.Memory.Apply(delta, seq); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.whole {
		j.pending = appendFrame(j.pending, j.epoch, seq, delta)
		j.whole = len(j.pending) > rewriteAbove // it will be more than all of it, or nearly
		if j.whole {
			j.pending = nil
		}
	}
	return nil
}

// Replace implements Store.
func (j *Journal) Replace(from Reader, seq uint64) error { return j.Begin(j.Epoch(), from, seq) }

// Begin makes the state that of an epoch.
func (j *Journal) Begin(epoch uint64, from Reader, seq uint64) error {
	if err := j.Memory.Replace(from, seq); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.epoch, j.whole, j.pending = epoch, true, nil
	return nil
}

// Flush makes what was applied last. With an error the state in memory is as it was, and
// the next Flush writes all of it.
func (j *Journal) Flush() error {
	// In this order: what is applied in between is in both, and is applied again when it
	// is read, in its order.
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gone {
		return nil
	}
	var err error
	if j.whole || j.file == nil || j.length+int64(len(j.pending)) > rewriteAbove && j.length > 2*j.bytesNow() {
		err = j.rewrite()
	} else if len(j.pending) > 0 {
		err = j.extend()
	}
	if err != nil {
		j.whole = true
		return fmt.Errorf("write an operator's state to %s: %w", j.dir, err)
	}
	return nil
}

func (j *Journal) bytesNow() int64 {
	_, n := j.Memory.Size()
	return n
}

func (j *Journal) extend() error {
	if _, err := j.file.Write(j.pending); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.length += int64(len(j.pending))
	j.flushed = lastSeq(j.pending)
	j.pending = j.pending[:0]
	return nil
}

func lastSeq(frames []byte) (seq uint64) {
	for len(frames) >= frameHead {
		seq = binary.LittleEndian.Uint64(frames[16:])
		frames = frames[frameHead+int(binary.LittleEndian.Uint32(frames)):]
	}
	return seq
}

func (j *Journal) rewrite() error {
	s, err := j.Memory.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()
	name := journalName(j.dir)
	f, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	w := &counted{w: bufio.NewWriterSize(f, 1<<20)}
	err = WriteFrames(w, j.epoch, s)
	err = errors.Join(err, w.w.Flush(), f.Sync())
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err == nil {
		err = syncDir(j.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if j.file != nil {
		_ = j.file.Close() // it has been replaced
	}
	j.file, j.length, j.whole, j.pending, j.flushed = f, w.n, false, nil, s.Seq()
	return nil
}

type counted struct {
	w *bufio.Writer
	n int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close makes everything last and ends the journal.
func (j *Journal) Close() error {
	err := j.Flush()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		err = errors.Join(err, j.file.Close())
		j.file = nil
	}
	return err
}

// Remove takes the file away; the journal is of no use afterwards.
func (j *Journal) Remove() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.gone = true
	if j.file != nil {
		_ = j.file.Close() // it goes
		j.file = nil
	}
	if err := os.Remove(journalName(j.dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func appendFrame(dst []byte, epoch, seq uint64, delta []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(delta)))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, epoch)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = append(dst, delta...)
	binary.LittleEndian.PutUint32(dst[at+4:], crc32.Checksum(dst[at+8:], castagnoli)^uint32(len(delta)))
	return dst
}

// WriteFrames writes a state, of an epoch, as frames: the last one, which is empty, tells
// that it is whole.
func WriteFrames(w io.Writer, epoch uint64, s Snapshot) error {
	var chunk, frame []byte
	var err error
	put := func(seq uint64) bool {
		frame = appendFrame(frame[:0], epoch, seq, chunk)
		chunk = chunk[:0]
		_, err = w.Write(frame)
		return err == nil
	}
	e := s.Scan(nil, nil, func(key, v []byte) bool {
		chunk = appendChange(chunk, string(key), v, false)
		return len(chunk) < chunkBytes || put(0)
	})
	if e != nil || err != nil {
		return errors.Join(e, err)
	}
	if len(chunk) > 0 && !put(0) {
		return err
	}
	put(s.Seq())
	return err
}

// frame is one of a file or a stream, whole: its delta is a step's, or part of a state, or
// the head of a step.
type frame struct {
	epoch, seq uint64
	delta      []byte
}

func (f *frame) size() int64 { return frameHead + int64(len(f.delta)) }

// frameBytesMax bounds a frame's delta.
const frameBytesMax = 1 << 30

// readFrame reads the next frame. The error is ErrDelta where there is none that is whole, and
// another one where it can't be read.
func readFrame(r io.Reader) (f frame, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, unread(err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > frameBytesMax {
		return f, fmt.Errorf("%w: a frame of %d bytes", ErrDelta, n)
	}
	f = frame{binary.LittleEndian.Uint64(head[8:]), binary.LittleEndian.Uint64(head[16:]), make([]byte, n)}
	if _, err := io.ReadFull(r, f.delta); err != nil {
		return f, unread(err)
	}
	if crc32.Update(crc32.Checksum(head[8:], castagnoli), castagnoli, f.delta)^n != binary.LittleEndian.Uint32(head[4:]) {
		return f, fmt.Errorf("%w: a checksum is wrong", ErrDelta)
	}
	return f, nil
}

// unread tells an end from what couldn't be read: a disk's error, or that of another node.
func unread(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the state is cut short: %w", ErrDelta, err)
	}
	return err
}

// ReadFrames fills a state with frames, up to the end or the first that isn't one, and
// returns their epoch and length. ErrDelta tells that not even what was written first is
// whole; other errors are those of r.
func ReadFrames(r io.Reader, m *Memory) (epoch uint64, length int64, err error) {
	whole := false
	for {
		f, err := readFrame(r)
		if errors.Is(err, ErrDelta) {
			break
		}
		if err != nil {
			return 0, 0, err
		}
		if err := m.Apply(f.delta, f.seq); err != nil {
			return 0, 0, err
		}
		epoch = f.epoch
		whole = whole || len(f.delta) == 0 || f.seq > 0
		length += f.size()
	}
	if !whole {
		return 0, 0, fmt.Errorf("%w: the state is cut short", ErrDelta)
	}
	return epoch, length, nil
}
