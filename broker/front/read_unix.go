//go:build unix

package front

import (
	"io"
	"net"
	"syscall"
)

// rawReader reads from a socket that waits without a buffer: a connection that
// is quiet holds none.
type rawReader struct {
	raw  syscall.RawConn
	call func(fd uintptr) bool // made once: a closure per read would be garbage
	buf  *readBuffer
	n    int
	err  error
}

func newReader(c net.Conn) reader {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return connReader{c}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return connReader{c}
	}
	r := &rawReader{raw: raw}
	r.call = func(fd uintptr) bool {
		for {
			r.n, r.err = syscall.Read(int(fd), r.buf.space())
			if r.err == syscall.EAGAIN {
				r.buf.park()
				return false // called again when there is something
			}
			if r.err != syscall.EINTR {
				return true
			}
		}
	}
	return r
}

func (r *rawReader) read(buf *readBuffer) (int, error) {
	r.buf, r.n, r.err = buf, 0, nil
	err := r.raw.Read(r.call)
	if err == nil {
		err = r.err
		if err == nil && r.n == 0 {
			err = io.EOF
		}
	}
	return max(r.n, 0), err
}
