package catalogue

import (
	"crypto/sha256"
	"encoding/binary"
)

// Digest returns a figure that is equal for equal catalogues. It encodes all of it, so it
// is made of a frozen one, beside the application of commands.
func (f *Frozen) Digest() (uint64, error) {
	h := sha256.New()
	if err := f.encode(h); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(h.Sum(nil)), nil
}
