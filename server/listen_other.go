//go:build !unix

package server

import "syscall"

// restrictSocket does nothing: files have no mode on this system.
func restrictSocket(_, _ string, _ syscall.RawConn) error { return nil }

// refused reports that a socket exists and has no listener. This cannot be detected on this system, so a stale socket
// must be removed manually.
func refused(error) bool { return false }
