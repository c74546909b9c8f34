package runtime

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// quickAck switches delayed acknowledgements off before each read. The kernel
// switches them on again by itself, hence each time.
type quickAck struct {
	*net.TCPConn
	raw syscall.RawConn
}

func newQuickAck(c *net.TCPConn) net.Conn {
	raw, err := c.SyscallConn()
	if err != nil {
		return c
	}
	return &quickAck{c, raw}
}

// Read re-arms on both sides of the read: before it for what comes next, after
// it to have what just came acknowledged now.
func (q *quickAck) Read(b []byte) (int, error) {
	q.arm()
	n, err := q.TCPConn.Read(b)
	if err == nil {
		q.arm()
	}
	return n, err
}

// arm ignores errors: it is about speed only, and a broken connection shows in
// the read.
func (q *quickAck) arm() {
	_ = q.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
	})
}
