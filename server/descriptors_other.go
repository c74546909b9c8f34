//go:build !unix

package server

import "net"

// openFiles returns the process's limit of open files; 0 if unknown.
func openFiles() int { return 0 }

// descriptorOf returns the descriptor of a connection; 0 if unknown.
func descriptorOf(net.Conn) int { return 0 }
