package clients

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy passes TCP connections on, and can break them.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu   sync.Mutex
	open []net.Conn
}

// startProxy starts a proxy in front of an address, until the test ends.
func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.pass(client, server)
	}
}

// cut breaks the connections there are.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
}

// pass carries bytes both ways until either end is reached.
func (p *proxy) pass(client, server net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, client, server)
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = client.Close()
		_ = server.Close()
	}
	p.wg.Go(func() { carry(server, client) })
	p.wg.Go(func() { carry(client, server) })
}
