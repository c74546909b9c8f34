//go:build !unix

package server

import "syscall"

// restrictSocket does nothing: files have no mode here.
func restrictSocket(_, _ string, _ syscall.RawConn) error { return nil }

// refused reports that a socket exists and nobody listens on it. Nobody can tell here,
// so that a socket left behind has to be removed by hand.
func refused(error) bool { return false }
