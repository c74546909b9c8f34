package copilot

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
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

// Dial connects to a server and checks that it answers and takes the caller for who it
// is. ctx bounds the check. The target is an address (host:port), the path of a unix
// socket ("unix:///run/copilot-grpc.sock", or simply the absolute path), or anything
// else that gRPC resolves.
//
// Unix sockets and the loopback interface are spoken to in plain text, everything else
// with TLS: see [WithTLS] and [WithInsecure].
func Dial(ctx context.Context, target string, opts ...Option) (*Client, error) {
	st := newSettings(opts)
	if strings.HasPrefix(target, "/") {
		target = "unix://" + target
	}
	conn, err := grpc.NewClient(target, dialOptions(target, st)...)
	if err != nil {
		return nil, fmt.Errorf("copilot: dial %q: %w", target, err)
	}
	c := newClient(conn, conn.Close, st)
	if _, err := c.ServerInfo(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("copilot: dial %q: %w", target, err)
	}
	return c, nil
}

func dialOptions(target string, st *settings) []grpc.DialOption {
	plain := st.tls == nil && (st.insecure || isLocal(target))
	creds := SocketCredentials()
	if !plain {
		config := st.tls
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		creds = credentials.NewTLS(config)
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
	if st.token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{token: st.token, plain: plain}))
	}
	return append(opts, st.grpc...)
}

// isLocal reports whether what is sent to target stays on this machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	if i := strings.LastIndex(target, "/"); i >= 0 { // dns:///host:port, passthrough:///…
		target = target[i+1:]
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// bearer sends a token with every call.
type bearer struct {
	token string
	plain bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return !b.plain }
