//go:build !linux

package runtime

import "net"

// newQuickAck returns c: only Linux has the socket option.
func newQuickAck(c *net.TCPConn) net.Conn { return c }
