package runtime

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/loopback"
)

// dialTimeout bounds the TCP connect.
const dialTimeout = 10 * time.Second

// Dialer is a Runner that connects to a running CLI server. The server has other clients, so the bridge never shuts
// it down.
type Dialer struct {
	// Address is host:port.
	Address string
	// Token is the server's connection token; "" if it has none.
	Token string
	// NoQuickAck disables immediate acknowledgements. By default (on Linux) every reply is acknowledged at once,
	// because the CLI does not disable Nagle's algorithm and would wait up to 40 ms for the acknowledgement.
	NoQuickAck bool
}

// Start connects. The profile does not affect a running server.
func (d *Dialer) Start(ctx context.Context, _ Spec) (Transport, error) {
	conn, err := d.dial(ctx)
	if err != nil {
		return nil, fault.Wrap(err, fault.RuntimeDialFailed, "cannot reach the copilot server at %q", d.Address).
			With("address", d.Address)
	}
	return &dialled{newStream(ctx, conn, Peer{Address: d.Address, Token: d.Token}), d.dial}, nil
}

func (d *Dialer) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	tcp, err := dialTCP(ctx, d.Address)
	if err != nil || d.NoQuickAck {
		return tcp, err
	}
	return newQuickAck(tcp), nil
}

// dialled is the Transport to a server that the bridge did not start.
type dialled struct {
	*stream
	another func(ctx context.Context) (io.ReadWriteCloser, error)
}

// Another opens another connection to the same server.
func (s *dialled) Another(ctx context.Context) (io.ReadWriteCloser, error) { return s.another(ctx) }

// dialQuick connects with immediate acknowledgements.
func dialQuick(ctx context.Context, address string) (net.Conn, error) {
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return nil, err
	}
	return newQuickAck(conn), nil
}

// dialTCP connects within dialTimeout.
func dialTCP(ctx context.Context, address string) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil // dialling TCP returns this type
}

// Diagnose connects to the address.
func (d *Dialer) Diagnose(ctx context.Context) []Finding {
	found := []Finding{d.reach(ctx)}
	if host, _, err := net.SplitHostPort(d.Address); err == nil && !loopback.Host(host) {
		found = append(found, Finding{
			Level: LevelWarning, Subject: "copilot server",
			Text:   fmt.Sprintf("%q is not on this machine, and its protocol is not encrypted", d.Address),
			Remedy: "run the bridge beside the server, or tunnel the connection",
		})
	}
	if d.Token == "" {
		found = append(found, Finding{
			Level: LevelWarning, Subject: "connection token",
			Text:   "no token is set: without a token every process that can reach the server can use it",
			Remedy: "start the server with COPILOT_CONNECTION_TOKEN and give the bridge the same token",
		})
	}
	return found
}

func (d *Dialer) reach(ctx context.Context) Finding {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", d.Address)
	if err != nil {
		return Finding{
			Level: LevelError, Subject: "copilot server", Text: fmt.Sprintf("cannot reach %q: %v", d.Address, err),
			Remedy: "start it with \"copilot --headless --port <port>\", or correct the address",
		}
	}
	_ = conn.Close()
	return Finding{Level: LevelOK, Subject: "copilot server", Text: fmt.Sprintf("%q accepts connections", d.Address)}
}
