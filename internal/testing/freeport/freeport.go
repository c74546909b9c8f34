// Package freeport chooses ports for servers of tests that have to know their address before they start, or that have
// to have it again after a restart.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// The kernel gives outgoing connections and listeners without a port those from 32768 (net.ipv4.ip_local_port_range on
// Linux; 49152 on macOS). A port below can only be taken by a server that asks for it.
const first, last = 10_000, 32_767

// given are the ports that this process was given.
var given sync.Map

// Port returns a TCP port of the loopback interface on which nothing listens, another one at each call of a process.
// Two processes get the same one only by a rare chance. It is safe for concurrent use.
func Port() (int, error) {
	for {
		port := first + rand.IntN(last-first+1)
		if _, taken := given.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		return port, l.Close()
	}
}

// Address is 127.0.0.1 with a Port.
func Address() (string, error) {
	port, err := Port()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
