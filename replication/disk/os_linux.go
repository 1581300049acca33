package disk

import (
	"errors"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// iovecMax is the kernel's limit of buffers in one pwritev.
const iovecMax = 1024

func (f osFile) fd() int { return int(f.Fd()) }

// Writev implements File.
func (f osFile) Writev(bufs [][]byte, off int64) error {
	rest := bufs
	for len(rest) > 0 {
		n, err := unix.Pwritev(f.fd(), rest[:min(len(rest), iovecMax)], off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return noSpace(&os.PathError{Op: "pwritev", Path: f.Name(), Err: err})
		}
		if n == 0 {
			return &os.PathError{Op: "pwritev", Path: f.Name(), Err: io.ErrShortWrite}
		}
		off += int64(n)
		for len(rest) > 0 && n >= len(rest[0]) {
			n -= len(rest[0])
			rest = rest[1:]
		}
		if n > 0 {
			rest[0] = rest[0][n:]
		}
	}
	runtime.KeepAlive(f.File)
	return nil
}

// Allocate implements File.
func (f osFile) Allocate(size int64) error {
	for {
		err := unix.Fallocate(f.fd(), 0, 0, size)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return noSpace(&os.PathError{Op: "fallocate", Path: f.Name(), Err: err})
		}
		return nil
	}
}

// Datasync implements File.
func (f osFile) Datasync() error {
	for {
		err := unix.Fdatasync(f.fd())
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// StartSync implements File.
func (f osFile) StartSync(off, n int64) {
	_ = unix.SyncFileRange(f.fd(), off, n, unix.SYNC_FILE_RANGE_WRITE) // a hint
}

// DropCache implements File.
func (f osFile) DropCache() {
	_ = unix.Fadvise(f.fd(), 0, 0, unix.FADV_DONTNEED) // a hint
}
