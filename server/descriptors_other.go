//go:build !unix

package server

import "net"

// openFiles is how many files the process may have open; 0 is not known.
func openFiles() int { return 0 }

// descriptorOf returns the descriptor of a connection; 0 is not known.
func descriptorOf(net.Conn) int { return 0 }
