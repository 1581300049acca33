//go:build !linux

package disk

import (
	"fmt"
)

// zeroes is what Allocate writes; a variable, so that it costs no memory until
// a file is made longer.
var zeroes [64 << 10]byte

// Allocate implements File. Writing zeroes is the one way to reserve blocks that
// every system has.
func (f osFile) Allocate(size int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	for off := st.Size(); off < size; {
		n, err := f.WriteAt(zeroes[:min(int64(len(zeroes)), size-off)], off)
		if err != nil {
			return noSpace(err)
		}
		off += int64(n)
	}
	return nil
}

// Datasync implements File. Sync is the full flush where the system tells the
// two apart (on macOS, F_FULLFSYNC).
func (f osFile) Datasync() error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	return nil
}

// StartSync implements File: no hint here.
func (osFile) StartSync(int64, int64) {}

// DropCache implements File: no hint here.
func (osFile) DropCache() {}
