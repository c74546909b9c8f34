package copilot

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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

// Dial connects to a server and checks that it answers, takes the caller for who it is, and
// has a version from 0.1 up to, but not including, 1.0: otherwise the error is an
// [*IncompatibleError]. ctx bounds the check. The target is an address (host:port), the path of a unix
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
	info, err := c.ServerInfo(ctx)
	if err == nil {
		err = checkVersion(info.GetVersion())
	} else if other := foreign(err); other != nil {
		err = other
	}
	if err != nil {
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
	if st.token != nil {
		b := bearer{source: st.token, plain: plain}
		opts = append(opts, grpc.WithPerRPCCredentials(b), grpc.WithChainUnaryInterceptor(b.unary),
			grpc.WithChainStreamInterceptor(b.stream))
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

// The window of servers that this package works with: from the first version, below the
// second.
var firstServer, tooNewServer = [2]int{0, 1}, [2]int{1, 0}

// IncompatibleError says that the target is no copilot-grpc server, or that its version does
// not work with this package.
type IncompatibleError struct {
	// The server's version; empty if the target is another program.
	Version string

	message string
	cause   error
}

// Error says what does not fit.
func (e *IncompatibleError) Error() string { return "copilot: " + e.message }

// Unwrap gives the error of the call, if there was one.
func (e *IncompatibleError) Unwrap() error { return e.cause }

// checkVersion compares a server's version with the window. Development builds have no such
// version, and pass.
func checkVersion(version string) error {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return nil
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if errMajor != nil || errMinor != nil {
		return nil
	}
	switch found := [2]int{major, minor}; {
	case before(found, firstServer):
		return &IncompatibleError{Version: version, message: fmt.Sprintf(
			"the server has version %s; this package needs at least %d.%d: update the server", version, firstServer[0],
			firstServer[1])}
	case !before(found, tooNewServer):
		return &IncompatibleError{Version: version, message: fmt.Sprintf(
			"the server has version %s; this package works below %d.%d: update the package", version, tooNewServer[0],
			tooNewServer[1])}
	}
	return nil
}

func before(a, b [2]int) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

// foreign recognises what a server of another kind answers to GetServerInfo.
func foreign(err error) error {
	e := asError(err)
	if e == nil || e.fromServer() {
		return nil
	}
	switch e.Code {
	case codes.Unimplemented, codes.NotFound, codes.Unknown:
		return &IncompatibleError{cause: err, message: "the target is no copilot-grpc server: " + e.Message}
	}
	return nil
}
