// Package wire is the layout of what goes over a connection of two nodes: frames,
// and the messages that are cut into them.
//
// A frame is a header of 16 bytes, little endian, and at most FrameMax bytes of a
// message. The messages of one lane (a kind and a number) follow each other; frames
// of different lanes mix.
//
//	0  uint32  bytes that follow the header
//	4  uint8   kind
//	5  uint8   flags: 1 the first frame of a message, 2 its last
//	6  uint16  zero
//	8  uint32  number of the lane
//	12 uint32  bytes of the whole message; in the first frame, otherwise zero
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Kind is what a message is about, in the order of urgency.
type Kind uint8

const (
	Control Kind = iota // pings, credit, cancelling
	Raft                // heartbeats, votes, answers; small
	Append              // entries; a lane for each group
	Call                // requests and answers, status, addresses
	Chunk               // a lane for each channel
	Stream              // a lane for each stream
	Kinds
)

const (
	HeaderBytes = 16
	// FrameMax bounds how long anything urgent waits for what isn't.
	FrameMax = 128 << 10

	flagFirst = 1
	flagLast  = 2

	// trustedBytes is how much room a message gets before so much of it has come.
	trustedBytes = 9 << 20

	// lanesMax bounds the messages that may be incomplete at once.
	lanesMax = 4096
)

// ErrFrame is wrapped by every complaint about what was received.
var ErrFrame = errors.New("peer: unreadable frame")

// Max is the most bytes a message of a kind has.
func (k Kind) Max() int {
	switch k {
	case Control, Raft:
		return 64 << 10
	case Append:
		return 256 << 20
	case Call:
		return 2 << 20
	case Chunk:
		return 256 << 10
	case Stream:
		return FrameMax
	}
	return 0
}

// Header describes a frame.
type Header struct {
	Len         int
	Kind        Kind
	First, Last bool
	ID          uint32
	Total       int
}

// Put writes the header to the first HeaderBytes of b.
func (h Header) Put(b []byte) {
	var flags uint8
	if h.First {
		flags |= flagFirst
	}
	if h.Last {
		flags |= flagLast
	}
	binary.LittleEndian.PutUint32(b, uint32(h.Len))
	b[4], b[5], b[6], b[7] = uint8(h.Kind), flags, 0, 0
	binary.LittleEndian.PutUint32(b[8:], h.ID)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.Total))
}

// ParseHeader reads and checks a header.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: a header of %d bytes", ErrFrame, len(b))
	}
	length, total := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[12:])
	h := Header{Kind: Kind(b[4]), First: b[5]&flagFirst != 0, Last: b[5]&flagLast != 0, ID: binary.LittleEndian.Uint32(b[8:])}
	switch {
	case h.Kind >= Kinds || b[5] > flagFirst|flagLast || b[6] != 0 || b[7] != 0:
		return Header{}, fmt.Errorf("%w: kind %d, flags %x, reserved %x", ErrFrame, b[4], b[5], b[6:8])
	case length > FrameMax:
		return Header{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrFrame, length, FrameMax)
	case uint64(total) > uint64(h.Kind.Max()):
		return Header{}, fmt.Errorf("%w: a message of kind %d with %d bytes, at most %d are allowed", ErrFrame, h.Kind, total, h.Kind.Max())
	case h.First && (length > total || h.Last != (length == total)), !h.First && (total != 0 || length == 0):
		return Header{}, fmt.Errorf("%w: %d of %d bytes, flags %x", ErrFrame, length, total, b[5])
	}
	h.Len, h.Total = int(length), int(total)
	return h, nil
}

// Message is one that was received. Its body was made for it and is kept by whoever
// gets it.
type Message struct {
	Kind Kind
	ID   uint32
	Body []byte
}

type laneKey struct {
	kind Kind
	id   uint32
}

// Reader puts messages together.
type Reader struct {
	r       *bufio.Reader
	header  [HeaderBytes]byte
	partial map[laneKey]*partial
}

type partial struct {
	body  []byte // what has come
	total int
}

// NewReader reads from r, with a buffer of its own: a small one, past which what is
// large is read to where it stays.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 16<<10), partial: map[laneKey]*partial{}}
}

// Next returns the next message that is complete. io.EOF only between two frames.
func (r *Reader) Next() (Message, error) {
	for {
		if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
			return Message{}, err
		}
		h, err := ParseHeader(r.header[:])
		if err != nil {
			return Message{}, err
		}
		if h.First && h.Last {
			body := makeBody(h)
			return Message{h.Kind, h.ID, body}, r.fill(body)
		}
		m, done, err := r.piece(h)
		if err != nil || done {
			return m, err
		}
	}
}

// pieces are bodies of large messages of streams, which whoever has read them gives back:
// a file of a gigabyte is some thousands of them.
var pieces = sync.Pool{New: func() any { b := make([]byte, FrameMax); return &b }}

func makeBody(h Header) []byte {
	if h.Kind == Stream && h.Total > FrameMax/2 {
		return (*pieces.Get().(*[]byte))[:h.Total]
	}
	return make([]byte, h.Total)
}

// Recycle takes the body of a message of a stream back, of which nobody has anything any
// more.
func Recycle(body []byte) {
	if cap(body) == FrameMax {
		body = body[:FrameMax]
		pieces.Put(&body)
	}
}

func (r *Reader) piece(h Header) (Message, bool, error) {
	key := laneKey{h.Kind, h.ID}
	p := r.partial[key]
	switch {
	case h.First && p != nil:
		return Message{}, false, fmt.Errorf("%w: a message begins within another", ErrFrame)
	case h.First:
		if len(r.partial) >= lanesMax {
			return Message{}, false, fmt.Errorf("%w: more than %d incomplete messages", ErrFrame, lanesMax)
		}
		p = &partial{body: make([]byte, 0, min(h.Total, trustedBytes)), total: h.Total}
		r.partial[key] = p
	case p == nil:
		return Message{}, false, fmt.Errorf("%w: a message without a beginning", ErrFrame)
	}
	if rest := p.total - len(p.body); h.Len > rest || h.Last != (h.Len == rest) {
		return Message{}, false, fmt.Errorf("%w: %d bytes of the %d that a message lacks", ErrFrame, h.Len, rest)
	}
	n := len(p.body)
	p.body = slices.Grow(p.body, h.Len)[:n+h.Len]
	if err := r.fill(p.body[n:]); err != nil {
		return Message{}, false, err
	}
	if !h.Last {
		return Message{}, false, nil
	}
	delete(r.partial, key)
	return Message{h.Kind, h.ID, p.body}, true, nil
}

func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.r, b)
	if err == io.EOF && len(b) > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}
