package runtime

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// quickAck disables delayed acknowledgements before each read. The kernel enables them again, so once is not
// sufficient.
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

// Read sets the option before the read for the next data, and after it to acknowledge the received data now.
func (q *quickAck) Read(b []byte) (int, error) {
	q.arm()
	n, err := q.TCPConn.Read(b)
	if err == nil {
		q.arm()
	}
	return n, err
}

// arm ignores errors: the option only affects speed, and the read reports a broken connection.
func (q *quickAck) arm() {
	_ = q.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1)
	})
}
