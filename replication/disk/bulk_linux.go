package disk

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bulkFile is a file with a second descriptor, whose writes go past the page cache.
type bulkFile struct {
	osFile
	direct *os.File // nil where the file system has no such thing
	refuse atomic.Bool
}

// OpenBulk makes OS a file system for OpenBulk.
func (OS) OpenBulk(name string, create bool, size int64) (File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, noSpace(err)
	}
	b := &bulkFile{osFile: osFile{f}}
	if err := b.reserve(size); err != nil {
		return nil, errors.Join(noSpace(err), f.Close())
	}
	if d, err := os.OpenFile(name, os.O_WRONLY|unix.O_DIRECT, 0); err == nil {
		b.direct = d
	}
	return b, nil
}

// reserve is Allocate without the length.
func (f *bulkFile) reserve(size int64) error {
	for size > 0 {
		err := unix.Fallocate(f.fd(), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		}
		return nil // where it can't be done it need not
	}
	return nil
}

// WriteAt implements File.
func (f *bulkFile) WriteAt(p []byte, off int64) (int, error) {
	if f.direct != nil && aligned(p, off) && !f.refuse.Load() {
		n, err := f.direct.WriteAt(p, off)
		if err == nil || n > 0 || !errors.Is(err, unix.EINVAL) {
			return n, noSpace(err)
		}
		f.refuse.Store(true) // this disk's blocks are larger
	}
	n, err := f.osFile.WriteAt(p, off)
	return n, noSpace(err)
}

// StartSync implements File: what was written directly is being written.
func (f *bulkFile) StartSync(off, n int64) {
	if f.direct == nil || f.refuse.Load() {
		f.osFile.StartSync(off, n)
	}
}

// Close implements File.
func (f *bulkFile) Close() error {
	var err error
	if f.direct != nil {
		err = f.direct.Close()
	}
	return errors.Join(err, f.osFile.Close())
}
