//go:build !linux

package peer

import (
	"net"
	"syscall"
)

func tune(net.Conn) {}

func rawConn(*net.TCPConn) syscall.RawConn { return nil }

func tryWrite(_ syscall.RawConn, vector [][]byte) [][]byte { return vector }
