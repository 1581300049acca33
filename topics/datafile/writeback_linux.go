package datafile

import (
	"os"

	"golang.org/x/sys/unix"
)

// startWriteback tells the kernel to start writing a range; it is a hint.
func startWriteback(f *os.File, offset, length int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, length, unix.SYNC_FILE_RANGE_WRITE)
}
