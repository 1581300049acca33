//go:build unix

package front

import (
	"errors"
	"syscall"
)

// rawWriter makes one write call on a non-blocking socket.
type rawWriter struct {
	raw  syscall.RawConn
	call func(fd uintptr) bool // made once: a closure per write would be garbage
	buf  []byte
	n    int
	err  error
}

func newRawWriter(raw syscall.RawConn) inlineWriter {
	w := &rawWriter{raw: raw}
	w.call = func(fd uintptr) bool {
		w.n, w.err = syscall.Write(int(fd), w.buf)
		return true // never wait
	}
	return w
}

func (w *rawWriter) write(b []byte) (int, error) {
	w.buf, w.n, w.err = b, 0, nil
	err := w.raw.Write(w.call)
	w.buf = nil
	if err == nil {
		err = w.err
	}
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return max(w.n, 0), err
}
