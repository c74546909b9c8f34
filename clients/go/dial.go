package copilot

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/transport"
)

const (
	// Static windows: with grpc-go's dynamic ones both ends answer a ping for every
	// sparse message, which doubles the cost of a stream of events.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	// gRPC's own 4 MiB is too little: a page of ListEvents has up to 3 MiB of events and
	// what goes with them, and lists of callbacks and sessions are not counted in bytes.
	maxReceive = 16 << 20

	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 20 * time.Second

	// checkTimeout bounds the check of a new connection.
	checkTimeout = 30 * time.Second
)

// serviceConfig repeats calls that read. Calls with a request id are repeated by this
// package, which knows that the id is set; all others never.
const serviceConfig = `{"methodConfig":[{
  "name":[
    {"service":"copilot.bridge.v1.SessionService","method":"GetSession"},
    {"service":"copilot.bridge.v1.SessionService","method":"ListSessions"},
    {"service":"copilot.bridge.v1.SessionService","method":"GetLastSession"},
    {"service":"copilot.bridge.v1.SessionService","method":"GetForegroundSession"},
    {"service":"copilot.bridge.v1.SessionService","method":"ListEvents"},
    {"service":"copilot.bridge.v1.SessionService","method":"GetUsage"},
    {"service":"copilot.bridge.v1.CallbackService","method":"ListPending"},
    {"service":"copilot.bridge.v1.RuntimeService","method":"GetServerInfo"},
    {"service":"copilot.bridge.v1.RuntimeService","method":"ListRuntimes"},
    {"service":"copilot.bridge.v1.RuntimeService","method":"Ping"},
    {"service":"copilot.bridge.v1.RuntimeService","method":"GetAuthStatus"},
    {"service":"copilot.bridge.v1.RuntimeService","method":"ListModels"}
  ],
  "retryPolicy":{
    "maxAttempts":4,"initialBackoff":"0.1s","maxBackoff":"1s","backoffMultiplier":2,
    "retryableStatusCodes":["UNAVAILABLE"]
  }
}]}`

// Dial connects to a server, and checks that it answers, accepts the caller and has a
// version that works with this library, unless [WithoutCheck] is given. ctx bounds the check, and 30 s do. The target is an
// address (host:port), the path of a unix socket ("unix:///run/copilot-grpc.sock", or simply
// the absolute path), or anything else that gRPC resolves. Errors are [ErrNoServer], an
// [*IncompatibleError], or an [*Error] of the server.
//
// The bearer token is that of [WithToken] or [WithTokenSource], else the value of [TokenEnv] unless [WithoutToken] is
// given.
//
// A target "xds:///NAME" asks a control plane and requires package copilotxds.
//
// Unix sockets and loopback addresses use plain text, all other targets TLS: see [WithTLS],
// [WithCAFile] and [WithInsecure].
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	st := newSettings(opts)
	if token := os.Getenv(TokenEnv); token != "" && st.token == nil && !st.noToken {
		WithToken(token)(st)
	}
	return dial(ctx, target, st)
}

func dial(ctx context.Context, target string, st *settings) (*Client, error) {
	if strings.HasPrefix(target, "/") {
		target = "unix://" + target
	}
	if target == "" || transport.IsURL(target) {
		return nil, fmt.Errorf("copilot: %q is no target: write host:port, unix:/path or dns:///host:port "+
			"(TLS is an option)", target)
	}
	options, err := dialOptions(target, st)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("copilot: dial %q: %w", target, err)
	}
	c := newClient(conn, conn.Close, st)
	if st.unchecked {
		return c, nil
	}
	if err := c.check(ctx, target); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func dialOptions(target string, st *settings) ([]grpc.DialOption, error) {
	plain := !st.tls.IsSet() && (st.insecure || isLocal(target))
	creds, serverName := SocketCredentials(), ""
	if !plain {
		config, err := st.tls.Load()
		if err != nil {
			return nil, err
		}
		creds, serverName = credentials.NewTLS(config), config.ServerName
	}
	creds, err := transport.CredentialsFor(target, creds, serverName)
	if err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithUserAgent("copilot-grpc-go"),
	}
	if st.token != nil {
		opts = append(opts, transport.Bearer{Source: st.token, Plain: plain}.DialOptions()...)
	}
	return append(opts, st.grpc...), nil
}

// SocketCredentials returns plain-text transport credentials that refuse a unix socket whose
// server runs as another user: in a directory such as /tmp anyone can make a socket first, and
// would be sent tokens and prompts. A server of root is accepted, and root accepts every
// server. The peer is known on Linux; elsewhere, and over TCP, nothing is checked. [Dial] uses
// them for unix sockets.
func SocketCredentials() credentials.TransportCredentials { return transport.SocketCredentials() }

// isLocal reports whether traffic to a target stays on this machine.
var isLocal = transport.IsLocal
