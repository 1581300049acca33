package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func (f osFile) fd() int { return int(f.Fd()) }

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
