package conformance

import (
	"context"
	"io"
	"net"
	"sync"
)

// proxy forwards connections to a server, and can break them.
type proxy struct {
	listener net.Listener
	network  string
	address  string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	// budget is the number of bytes from the server that are still forwarded; negative: any number.
	budget int
	closed bool
}

// newProxy forwards from listener to an address.
func newProxy(listener net.Listener, network, address string) *proxy {
	p := &proxy{
		listener: listener, network: network, address: address, budget: -1, conns: map[net.Conn]struct{}{},
	}
	p.running.Go(p.accept)
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := new(net.Dialer).DialContext(context.Background(), p.network, p.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.add(client, server) {
			return
		}
		p.running.Go(func() { p.copy(server, client, false) })
		p.running.Go(func() { p.copy(client, server, true) })
	}
}

// add registers the two ends of a connection. It closes them, and returns false, after the proxy's end.
func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			_ = c.Close()
			continue
		}
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

// copy copies until one end is closed. limited applies the budget.
func (p *proxy) copy(to, from net.Conn, limited bool) {
	defer p.drop(to, from)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if limited {
			n, err = p.take(n, err)
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// take reduces n to the budget. A budget that is used up ends the connection, and is then removed.
func (p *proxy) take(n int, err error) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.budget < 0 || n < p.budget {
		if p.budget >= 0 {
			p.budget -= n
		}
		return n, err
	}
	n, p.budget = p.budget, -1
	return n, io.ErrClosedPipe
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// cut breaks all connections. New ones can be made.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// cutAfter breaks the connection after so many bytes from the server.
func (p *proxy) cutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget = n
}

// close ends all connections, and waits for that.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cut()
	p.running.Wait()
}
