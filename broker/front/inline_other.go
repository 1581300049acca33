//go:build !unix

package front

import (
	"net"
	"syscall"
)

// newRawWriter returns nil: sockets are written by their flusher only.
func newRawWriter(syscall.RawConn) inlineWriter { return nil }

func newReader(c net.Conn) reader { return connReader{c} }
