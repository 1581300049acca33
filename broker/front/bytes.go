package front

import "unsafe"

// bytesOf returns the bytes of s without copying. They are read-only; staging
// copies what it keeps.
func bytesOf(s string) []byte {
	if s == "" {
		return nil
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}
