//go:build !linux

package datafile

import "os"

// startWriteback is a hint that only Linux takes.
func startWriteback(*os.File, int64, int64) {}
