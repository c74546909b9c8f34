package transport

import (
	"net"
	"syscall"
)

// peerUser returns the user that the server of a socket runs as.
func peerUser(conn *net.UnixConn) (uid int, known bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	var cred *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, false, err
	}
	if failed != nil {
		return 0, false, failed
	}
	return int(cred.Uid), true, nil
}
