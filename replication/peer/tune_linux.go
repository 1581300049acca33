package peer

import (
	"net"
	"syscall"

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

// rawConn is what tryWrite writes to.
func rawConn(c *net.TCPConn) syscall.RawConn {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// tryWrite writes as much as the socket takes at once, and returns the rest. Who writes
// that hears of errors.
func tryWrite(raw syscall.RawConn, vector [][]byte) [][]byte {
	if len(vector) == 0 {
		return nil
	}
	n := 0
	err := raw.Write(func(fd uintptr) bool {
		n, _ = unix.Writev(int(fd), vector)
		return true
	})
	if err != nil {
		return vector
	}
	for len(vector) > 0 && n >= len(vector[0]) {
		n -= len(vector[0])
		vector = vector[1:]
	}
	if n > 0 {
		vector[0] = vector[0][n:]
	}
	return vector
}
