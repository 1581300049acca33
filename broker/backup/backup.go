// Package backup reads and writes the archive of a stream's backup: what STREAM.SNAPSHOT
// sends and STREAM.RESTORE takes. The format is nats-server's of 2.15, so that
// backups go both ways:
//
//	archive  S2 stream of: magic "NATSARC1", entries, an entry that is all zero
//	entry    length of the name, z time (ns), sequence, length of the header, length
//	         of the payload; then name, header, payload
//
// Numbers are varints, z marks the signed one. The first entry is "state.json", then
// come the consumers ("consumers/<name>"), then the messages, with their subjects as
// names, by sequence. An archive without the last, empty entry has been cut short.
package backup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

const magic = "NATSARC1"

// StateName is the name of the first entry, and ConsumerPrefix how those of
// consumers begin.
const (
	StateName      = "state.json"
	ConsumerPrefix = "consumers/"
)

// nameMax is the longest name of an entry that is read.
const nameMax = 64 << 10

// ErrArchive is returned for what is not an archive, is damaged, or ends early.
var ErrArchive = errors.New("the backup is damaged or incomplete")

// Entry is one part of an archive. Sequence is 0 for what is no message.
type Entry struct {
	Name     string
	Time     int64
	Sequence uint64
	Header   []byte
	Payload  []byte
}

// Writer writes an archive. One goroutine at a time.
type Writer struct {
	s2  *s2.Writer
	buf []byte
}

// NewWriter returns a Writer to w. Close must be called in any case: it ends the
// compressor.
func NewWriter(w io.Writer) *Writer {
	return &Writer{s2: s2.NewWriter(w, s2.WriterConcurrency(1)), buf: []byte(magic)}
}

// Write adds an entry. It keeps nothing of it.
func (w *Writer) Write(e *Entry) error {
	b := w.buf
	b = binary.AppendUvarint(b, uint64(len(e.Name)))
	b = binary.AppendVarint(b, e.Time)
	b = binary.AppendUvarint(b, e.Sequence)
	b = binary.AppendUvarint(b, uint64(len(e.Header)))
	b = binary.AppendUvarint(b, uint64(len(e.Payload)))
	b = append(append(b, e.Name...), e.Header...)
	w.buf = b[:0]
	if _, err := w.s2.Write(b); err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	if _, err := w.s2.Write(e.Payload); err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	return nil
}

// Finish marks the archive as complete.
func (w *Writer) Finish() error { return w.Write(&Entry{}) }

// Close writes out what is left, complete or not.
func (w *Writer) Close() error {
	if err := w.s2.Close(); err != nil {
		return fmt.Errorf("write a backup: %w", err)
	}
	return nil
}

// Reader reads an archive. One goroutine at a time.
type Reader struct {
	r    *bufio.Reader
	most int
	some bool // the magic has been read
}

// NewReader returns a Reader of r that refuses entries with more than most bytes.
func NewReader(r io.Reader, most int) *Reader {
	return &Reader{r: bufio.NewReader(s2.NewReader(r, s2.ReaderMaxBlockSize(4<<20))), most: most}
}

// Next returns the next entry, which is the caller's, or io.EOF at the proper end.
// Any other error is ErrArchive or the underlying reader's.
func (r *Reader) Next() (*Entry, error) {
	if !r.some {
		var b [len(magic)]byte
		if _, err := io.ReadFull(r.r, b[:]); err != nil {
			return nil, damaged(err)
		}
		if string(b[:]) != magic {
			return nil, fmt.Errorf("%w: it is not of the format this server reads (2.15's)", ErrArchive)
		}
		r.some = true
	}
	name, err := binary.ReadUvarint(r.r)
	if err != nil {
		return nil, damaged(err)
	}
	at, err := binary.ReadVarint(r.r)
	if err != nil {
		return nil, damaged(err)
	}
	var numbers [3]uint64
	for i := range numbers {
		if numbers[i], err = binary.ReadUvarint(r.r); err != nil {
			return nil, damaged(err)
		}
	}
	seq, header, payload := numbers[0], numbers[1], numbers[2]
	if name == 0 && at == 0 && numbers == [3]uint64{} {
		return nil, io.EOF
	}
	most := uint64(r.most)
	if name > nameMax || header > most || payload > most-header {
		return nil, fmt.Errorf("%w: an entry of %d, %d and %d bytes", ErrArchive, name, header, payload)
	}
	b, err := r.take(int(name + header + payload))
	if err != nil {
		return nil, damaged(err)
	}
	head := name + header
	return &Entry{
		Name: string(b[:name]), Time: at, Sequence: seq, Header: b[name:head:head], Payload: b[head:],
	}, nil
}

// trusted is how much is made room for because an archive says so; more only as it
// comes.
const trusted = 1 << 20

func (r *Reader) take(n int) ([]byte, error) {
	b := make([]byte, min(n, trusted))
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, err
	}
	for len(b) < n {
		from := len(b)
		b = append(b, make([]byte, min(n-from, from))...)
		if _, err := io.ReadFull(r.r, b[from:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// damaged tells a cut or broken archive from a reader that failed.
func damaged(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends in the middle", ErrArchive)
	}
	if errors.Is(err, s2.ErrCorrupt) || errors.Is(err, s2.ErrCRC) || errors.Is(err, s2.ErrUnsupported) || errors.Is(err, s2.ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return fmt.Errorf("read a backup: %w", err)
}
