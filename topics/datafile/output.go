package datafile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

const (
	// writeStep is how much is handed to the kernel, and on its way to the disk, at a
	// time: a single large fsync at the end would hold up the write-ahead log's.
	writeStep = 1 << 20
	// bufferSize is writeStep and room for a message more.
	bufferSize = writeStep + writeStep/4
	// blockSize is what places, lengths and addresses are multiples of when a file is
	// written past the page cache.
	blockSize = 4096
)

// output is the file being written, and what of it is still to be written.
//
// All but the end of a file larger than writeStep goes past the page cache. Where memory
// is lent by a host, giving the cache new pages is by far the dearest part of a flush
// (8 µs of processor time for a page, against 1 for everything else), and what was
// written just now is in the store's memory anyway. What is read later is cached then.
type output struct {
	f      *os.File
	path   string
	buf    []byte // begins at a multiple of blockSize while that is of use
	base   []byte // the buffer buf began as; buf is another one behind a large message
	offset int64  // of buf's end in the file
	sum    uint32 // of what has left buf
	direct bool   // the file is written past the page cache
	plain  bool   // it can't or needn't be
}

func (w *output) init(f *os.File, path string) {
	w.f, w.path, w.base = f, path, takeBuffer()
	w.buf = w.base
}

// add counts n bytes that were appended to buf.
func (w *output) added(n int) error {
	w.offset += int64(n)
	return w.step(writeStep)
}

func (w *output) append(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), bufferSize-writeStep)
		w.buf = append(w.buf, b[:n]...)
		if err := w.added(n); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// step writes the buffer out once it has reached a size; of a file that is written past
// the page cache all but the last, incomplete block.
func (w *output) step(size int) error {
	if len(w.buf) < size {
		return nil
	}
	if !w.plain && !w.direct {
		w.direct = setDirect(w.f, true) == nil
		w.plain = !w.direct
	}
	n := len(w.buf)
	if w.direct {
		n -= n % blockSize
	}
	at := w.offset - int64(len(w.buf))
	if err := w.write(w.buf[:n], at); err != nil {
		return fmt.Errorf("write data file %s at %d: %w", w.path, at, err)
	}
	w.sum = Checksum(w.sum, w.buf[:n])
	w.buf = append(w.base, w.buf[n:]...)
	return nil
}

// flush writes all of the buffer; from here on the file goes through the page cache.
func (w *output) flush() error {
	if w.direct {
		if err := w.step(blockSize); err != nil {
			return err
		}
	}
	w.plain = true
	if w.direct {
		if err := setDirect(w.f, false); err != nil {
			return fmt.Errorf("write data file %s: %w", w.path, err)
		}
		w.direct = false
	}
	return w.step(1)
}

func (w *output) write(b []byte, at int64) error {
	if !w.direct {
		_, err := w.f.WriteAt(b, at)
		startWriteback(w.f, at, int64(len(b)))
		return err
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%blockSize == 0 {
		return w.writeDirect(b, at)
	}
	for len(b) > 0 { // a large message made the buffer grow; base is free
		n := copy(w.base[:writeStep], b)
		if err := w.writeDirect(w.base[:n], at); err != nil {
			return err
		}
		b, at = b[n:], at+int64(n)
	}
	return nil
}

func (w *output) writeDirect(b []byte, at int64) error {
	_, err := w.f.WriteAt(b, at)
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	// Larger blocks than any disk's that is known, or a file system that finds out only
	// now that it can't.
	if err := setDirect(w.f, false); err != nil {
		return err
	}
	w.direct, w.plain = false, true
	_, err = w.f.WriteAt(b, at)
	return err
}

// release gives the buffer back.
func (w *output) release() {
	giveBuffer(w.base)
	w.buf, w.base = nil, nil
}

// buffers are what outputs wrote from: using one again costs less than memory that was
// never touched.
var buffers struct {
	sync.Mutex
	free [][]byte
}

// buffersKept is how many buffers are kept.
const buffersKept = 2

func takeBuffer() []byte {
	buffers.Lock()
	defer buffers.Unlock()
	if n := len(buffers.free); n > 0 {
		b := buffers.free[n-1]
		buffers.free = buffers.free[:n-1]
		return b
	}
	b := make([]byte, bufferSize+blockSize)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blockSize
	return b[skip : skip : skip+bufferSize]
}

func giveBuffer(b []byte) {
	buffers.Lock()
	defer buffers.Unlock()
	if b != nil && len(buffers.free) < buffersKept {
		buffers.free = append(buffers.free, b)
	}
}
