package disk

import "unsafe"

// BulkAlign is what the place in the file, the length and the address of a write to a
// bulk file should be a multiple of.
const BulkAlign = 4096

// A file that is written once, from its beginning to its end, in large pieces, and is not
// read soon, is better not gathered in memory: what a kernel gathers it writes out at a
// time of its own, and whoever else syncs then waits for it.

// bulkFS is a file system that can write past the memory that it reads from.
type bulkFS interface {
	OpenBulk(name string, create bool, size int64) (File, error)
}

// OpenBulk opens a file, or makes it empty (create), to write it in large pieces up to
// about size bytes, for which blocks are reserved; its length is what was written. Pieces
// that are aligned to BulkAlign go to the disk past the page cache, where the system can
// do that; the others are allowed.
func OpenBulk(fsys FS, name string, create bool, size int64) (File, error) {
	if b, ok := fsys.(bulkFS); ok {
		return b.OpenBulk(name, create, size)
	}
	if create {
		return fsys.Create(name)
	}
	return fsys.Open(name)
}

// AlignedBuffer returns n bytes whose address is a multiple of BulkAlign.
func AlignedBuffer(n int) []byte {
	b := make([]byte, n+BulkAlign)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (BulkAlign - 1)
	return b[off : off+n : off+n]
}

func aligned(p []byte, off int64) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return len(p) > 0 && (uintptr(len(p))|uintptr(off)|at)&(BulkAlign-1) == 0
}
