package server

import (
	"crypto/x509"
	"errors"
	"net"
	"net/netip"

	"google.golang.org/grpc/credentials"
)

// ends are the addresses of both ends of a TCP connection.
type ends struct{ remote, local netip.AddrPort }

func endsOf(conn net.Conn) ends {
	remote, _ := conn.RemoteAddr().(*net.TCPAddr)
	local, _ := conn.LocalAddr().(*net.TCPAddr)
	return ends{remote.AddrPort(), local.AddrPort()}
}

// mesh follows connections whose TLS a control plane may configure. gRPC's xDS server wraps them, so that they are found
// by their ends.
type mesh struct {
	certificates *certificates
	connections  *connections
}

// admit follows a connection after its handshake. It closes one without the certificate that the policy requires, or
// with a revoked one. gRPC's filters need the original AuthInfo, so that the remote address leads to the connection.
func (m *mesh) admit(raw, safe net.Conn, shown credentials.AuthInfo, maxMessage int) (
	net.Conn, credentials.AuthInfo, error,
) {
	own, ok := shown.(ownInfo)
	if ok {
		shown = own.AuthInfo
	}
	info, secure := shown.(credentials.TLSInfo)
	on := m.connections.between(endsOf(raw))
	err := errors.New("the connection is closed")
	if on != nil && secure {
		err = m.certificates.admit(verified(info))
	}
	if err != nil {
		_ = safe.Close()
		return nil, nil, err
	}
	on.mesh = !ok
	return meshConn{on.follow(safe, maxMessage), on}, info, nil
}

// admit returns an error for a connection whose client has a revoked certificate, or lacks one that is required.
func (c *certificates) admit(chain []*x509.Certificate) error {
	if _, required := c.policy.Current().Certificates(); required && len(chain) == 0 {
		return errors.New("the policy requires a client certificate")
	}
	return c.lists.Load().Check(chain)
}

// between returns the open connection with these ends; nil if there is none.
func (t *connections) between(at ends) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ends[at]
}

// fallback are the server's own credentials, for connections that the control plane configures no TLS for.
type fallback struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (f fallback) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	safe, shown, err := f.TransportCredentials.ServerHandshake(conn)
	return safe, ownInfo{shown}, err
}

// ownInfo is the result of a handshake with the server's own credentials.
type ownInfo struct{ credentials.AuthInfo }

// meshConn is a connection whose remote address leads to the connection over TCP.
type meshConn struct {
	net.Conn
	on *connection
}

// RemoteAddr implements net.Conn.
func (c meshConn) RemoteAddr() net.Addr { return meshAddr{c.Conn.RemoteAddr(), c.on} }

// meshAddr is the remote address of a meshConn.
type meshAddr struct {
	net.Addr
	on *connection
}
