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

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of b, continued from crc.
func Checksum(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
