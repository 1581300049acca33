//go:build !unix

package front

import "syscall"

// newRawWriter returns nil: sockets are written by their flusher only.
func newRawWriter(syscall.RawConn) inlineWriter { return nil }
