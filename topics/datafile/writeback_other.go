//go:build !linux

package datafile

import "os"

// startWriteback is a hint that only Linux takes.
func startWriteback(*os.File, int64, int64) {}

// dropCache is a hint that only Linux takes.
func dropCache(*os.File, int64, int64) {}
