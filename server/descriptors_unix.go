//go:build unix

package server

import (
	"net"
	"syscall"
)

// openFiles returns the process's limit of open files; 0 if unknown.
func openFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur > 1<<30 {
		return 0
	}
	return int(l.Cur) //nolint:gosec // checked
}

// descriptorOf returns the descriptor of a connection that was just accepted; 0 if unknown. The system uses the
// lowest free number, so at least as many files are open.
func descriptorOf(conn net.Conn) (fd int) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(n uintptr) { fd = int(n) }) //nolint:gosec // a descriptor
	return fd
}
