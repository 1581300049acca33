package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system. Linux only: it relies on
// fallocate, fdatasync and pwritev.
type OS struct{}

type osFile struct{ *os.File }

// iovecMax is the kernel's limit of buffers in one pwritev.
const iovecMax = 1024

// Open implements FS.
func (OS) Open(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Create implements FS.
func (OS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, noSpace(err)
	}
	return osFile{f}, nil
}

// Rename implements FS.
func (OS) Rename(from, to string) error { return noSpace(os.Rename(from, to)) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// MkdirAll implements FS.
func (OS) MkdirAll(dir string) error { return noSpace(os.MkdirAll(dir, 0o700)) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// Free implements FS.
func (OS) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

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

// Size implements File.
func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// noSpace makes a full disk recognisable, keeping the cause.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
