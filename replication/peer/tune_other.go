//go:build !linux

package peer

import "net"

func tune(net.Conn) {}
