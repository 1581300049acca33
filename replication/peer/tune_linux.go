package peer

import (
	"net"

	"golang.org/x/sys/unix"
)

// tune keeps little of what we write in the kernel, where nothing urgent can
// overtake it any more.
func tune(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// A connection that ignores it is slower to let heartbeats through, no more.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 2*batchBytes)
	})
}
