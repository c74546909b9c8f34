//go:build unix

package server

import (
	"errors"
	"runtime"
	"syscall"
)

// restrictSocket gives a socket its mode before it has a name, so that there is no
// moment in which a lax umask lets others in. Where a socket without a name has no
// mode, restrictPath comes that moment later.
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

// refused reports that a socket exists and nobody listens on it.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
