package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/heraldmq/herald/replication/disk"
)

// pieceBytes is how much of a file is written at once, at multiples of it. A piece has
// room for the block that reaches over its end.
const pieceBytes = 256 << 10

// piecesAhead is how many pieces of one file may wait to be written.
const piecesAhead = 2

var pieces = sync.Pool{New: func() any { b := disk.AlignedBuffer(pieceBytes + BlockBytes); return &b }}

// pieceWriter writes a file while the next part of it comes.
type pieceWriter struct {
	file  disk.File
	queue chan writing
	done  sync.WaitGroup

	mu  sync.Mutex
	err error

	// Of the goroutine that receives.
	buf *[]byte
	at  int64 // where buf belongs in the file
	n   int   // how much is in it
}

type writing struct {
	buf *[]byte
	n   int
	at  int64
}

func newPieceWriter(file disk.File, at int64) *pieceWriter {
	w := &pieceWriter{file: file, at: at, queue: make(chan writing, piecesAhead), buf: pieces.Get().(*[]byte)}
	w.done.Go(w.write)
	return w
}

func (w *pieceWriter) write() {
	for p := range w.queue {
		if w.failed() == nil {
			if _, err := w.file.WriteAt((*p.buf)[:p.n], p.at); err != nil {
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
			} else {
				w.file.StartSync(p.at, int64(p.n))
			}
		}
		pieces.Put(p.buf)
	}
}

func (w *pieceWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// room returns where the next block goes.
func (w *pieceWriter) room(n int) []byte { return (*w.buf)[w.n : w.n+n] }

// add counts the block that was put into room, which was found right.
func (w *pieceWriter) add(n int) {
	w.n += n
	most := pieceBytes - int(w.at%pieceBytes)
	if w.n < most {
		return
	}
	next := pieces.Get().(*[]byte)
	rest := copy(*next, (*w.buf)[most:w.n])
	w.queue <- writing{w.buf, most, w.at}
	w.buf, w.n, w.at = next, rest, w.at+int64(most)
}

// close writes the rest and waits for all of it.
func (w *pieceWriter) close() error {
	if w.n > 0 {
		w.queue <- writing{w.buf, w.n, w.at}
	} else {
		pieces.Put(w.buf)
	}
	close(w.queue)
	w.done.Wait()
	return w.failed()
}

// receive writes the rest of a file, and returns the checksum of all of it. What came
// before an error is written.
func receive(ctx context.Context, to disk.File, f File, at int64, sum uint32, open Opener) (_ uint32, err error) {
	if at == f.Length {
		return sum, nil
	}
	stream, err := open(ctx, f, at)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	w := newPieceWriter(to, at)
	at, sum, err = blocks(ctx, stream, w, f, at, sum)
	if werr := w.close(); werr != nil {
		return 0, werr
	}
	if err == nil && at != f.Length {
		err = &SumError{f}
	}
	return sum, err
}

// blocks gives what SendFile sent to w, up to the empty block.
func blocks(ctx context.Context, r io.Reader, w *pieceWriter, f File, at int64, sum uint32) (int64, uint32, error) {
	for {
		var head [blockHeader]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return at, sum, fmt.Errorf("the connection ended at %d of %d bytes: %w", at, f.Length, err)
		}
		n := int(binary.LittleEndian.Uint32(head[:]))
		if n > BlockBytes || at+int64(n) > f.Length {
			return at, sum, ErrBlock
		}
		b := w.room(n)
		if _, err := io.ReadFull(r, b); err != nil {
			return at, sum, fmt.Errorf("the connection ended at %d of %d bytes: %w", at, f.Length, err)
		}
		if crc32.Checksum(b, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
			return at, sum, ErrBlock
		}
		if n == 0 {
			return at, sum, nil
		}
		sum = crc32.Update(sum, castagnoli, b)
		at += int64(n)
		w.add(n)
		if err := w.failed(); err != nil {
			return at, sum, err
		}
		if err := ctx.Err(); err != nil {
			return at, sum, err
		}
	}
}
