package datafile

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback tells the kernel to start writing a range; it is a hint.
func startWriteback(f *os.File, offset, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}

// dropCache makes the next read come from the disk; it is a hint.
func dropCache(f *os.File, offset, length int64) {
	_ = unix.Fadvise(int(f.Fd()), offset, length, unix.FADV_DONTNEED)
}
