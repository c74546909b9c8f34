//go:build unix

package server

import (
	"errors"
	"runtime"
	"syscall"
)

// restrictSocket sets the mode of a socket before it has a name, so that a permissive umask never lets other users
// connect. On systems where an unnamed socket has no mode, restrictPath sets it a moment later.
func restrictSocket(_, _ string, c syscall.RawConn) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	var chmod error
	if err := c.Control(func(fd uintptr) { chmod = syscall.Fchmod(int(fd), uint32(socketMode)) }); err != nil {
		return err
	}
	return chmod
}

// refused reports that a socket exists and has no listener.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
