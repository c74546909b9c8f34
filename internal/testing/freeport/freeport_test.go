package freeport

import (
	"net"
	"testing"
)

// An address is free, below the ports that the kernel gives, and given once.
func TestAddress(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		if seen[address] {
			t.Errorf("%s was given twice", address)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if port := l.Addr().(*net.TCPAddr).Port; port < first || port >= 32_768 {
			t.Errorf("port %d is one that the kernel gives to connections", port)
		}
	}
}
