//go:build unix

package server

import (
	"net"
	"syscall"
)

// openFiles is how many files the process may have open; 0 is not known.
func openFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur > 1<<30 {
		return 0
	}
	return int(l.Cur) //nolint:gosec // checked
}

// descriptorOf returns the descriptor of a connection that was just accepted. The system gives
// the lowest that is free, so that at least as many files are open. It is 0 where it is not
// known.
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
