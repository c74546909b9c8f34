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

// Dialer is a Runner that connects to a CLI server that runs already. We are one
// client among others there: it is never told to shut down.
type Dialer struct {
	// Address is host:port.
	Address string
	// Token is the server's connection token, "" if it has none.
	Token string
	// NoQuickAck leaves TCP as it is. By default every reply is acknowledged at
	// once (on Linux), because the CLI does not disable Nagle's algorithm and
	// would wait up to 40 ms for it.
	NoQuickAck bool
}

// Start connects. The profile has no influence on a server started by others.
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

// dialled is the Transport to a server that others run.
type dialled struct {
	*stream
	another func(ctx context.Context) (io.ReadWriteCloser, error)
}

// Another opens one more connection to the same server.
func (s *dialled) Another(ctx context.Context) (io.ReadWriteCloser, error) { return s.another(ctx) }

// dialQuick connects, with replies acknowledged at once.
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
	return conn.(*net.TCPConn), nil // a TCP dial gives nothing else
}

// Diagnose tries the address.
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
			Text:   "no token is set: a server without one obeys every process that can reach it",
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
