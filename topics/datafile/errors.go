package datafile

import (
	"fmt"
	"hash/crc32"
)

// CorruptError says which bytes on disk are not what was written. The part they
// belong to is refused, the rest goes on; restore it from a replica.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at offset %d: %s; restore it from a replica or a backup", e.File, e.Offset, e.Reason)
}

// NewerError tells that a file is of a version that only a newer program knows: it is not
// damaged, and must be left as it is.
type NewerError struct {
	File           string
	Version, Reads uint32
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s was written by a newer version of the program: it is of version %d, and this one reads up to %d; nothing was changed, start the newer version again",
		e.File, e.Version, e.Reads)
}

// NewerFormat is the version that the file is of.
func (e *NewerError) NewerFormat() uint32 { return e.Version }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of b, continued from crc.
func Checksum(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
