package copilot

import (
	"context"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/launch"
	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/transport"
)

// TargetEnv is the environment variable with the address of the server for [Connect].
const TargetEnv = "COPILOT_GRPC_TARGET"

// TokenEnv is the environment variable with the bearer token for [Connect] and [Dial], if no option has one.
const TokenEnv = "COPILOT_GRPC_TOKEN"

// ErrNoServer says that no server listens at the target, or that a private server does not
// start. The error that wraps it has the cause.
var ErrNoServer = launch.ErrNotFound

// IncompatibleError says that the server at a target does not work with this library.
type IncompatibleError struct {
	// The target.
	Target string
	// The server's version; empty if it is no copilot-grpc.
	Version string

	cause error
}

// Error says which versions work together.
func (e *IncompatibleError) Error() string {
	if e.Version == "" {
		return fmt.Sprintf("copilot: the server at %q is no copilot-grpc: %v", e.Target, e.cause)
	}
	return fmt.Sprintf("copilot: the server at %q has version %s; this library works with %s",
		e.Target, e.Version, transport.Window())
}

// Unwrap returns the error of the call that found it out, if any.
func (e *IncompatibleError) Unwrap() error { return e.cause }

// Connect is [Dial] with the server that this machine has: the one that [TargetEnv] names,
// else the one that listens on the default socket of `copilot-grpc serve`, else a private
// server as of [Launch].
func Connect(ctx context.Context, opts ...Option) (*Client, error) {
	if target := os.Getenv(TargetEnv); target != "" {
		return Dial(ctx, target, opts...)
	}
	socket, err := transport.DefaultSocket()
	if err == nil && transport.Listens(ctx, socket) {
		return Dial(ctx, "unix:"+socket, opts...)
	}
	return Launch(ctx, opts...)
}

// Launch starts a private server and connects to it. The server's program is copilot-grpc
// on PATH, or that of the environment variable COPILOT_GRPC_BINARY or [WithServerBinary].
// It listens on a unix socket in a temporary directory, and ends with [Client.Close]; on Linux
// also when this program ends. Its sessions end with it, unless [WithServerArgs] has a
// --data-dir. Options for TLS and tokens have no effect. ctx bounds the start.
func Launch(ctx context.Context, opts ...Option) (*Client, error) {
	st := newSettings(opts)
	st.tls, st.token = transport.TLS{}, nil // they are for other servers
	server, err := launch.Start(ctx, st.server)
	if err != nil {
		return nil, err
	}
	c, err := dial(ctx, server.Target(), st)
	if err != nil {
		_ = server.Stop() // err is the cause
		return nil, err
	}
	closeConn := c.closeConn
	c.closeConn = func() error {
		err := closeConn()
		if stopErr := server.Stop(); err == nil {
			err = stopErr
		}
		return err
	}
	return c, nil
}

// check asks the server who it is.
func (c *Client) check(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	info, err := c.ServerInfo(ctx)
	if err == nil {
		if !transport.IsCompatible(info.GetVersion()) {
			return &IncompatibleError{Target: target, Version: info.GetVersion()}
		}
		return nil
	}
	e := asError(err)
	switch {
	case e == nil || e.fromServer():
	case transport.IsForeign(e.Code, e.Message):
		return &IncompatibleError{Target: target, cause: err}
	case strings.Contains(e.Message, "handshake failed: tls:"):
		return fmt.Errorf("copilot: dial %q: see WithTLS, WithCAFile and WithServerName, and WithInsecure for a server "+
			"without TLS: %w", target, err)
	case strings.Contains(e.Message, "handshake failed:"): // a server is there
	case e.Code == codes.Unavailable:
		return fmt.Errorf("copilot: %w at %q: start it with `copilot-grpc serve`, or set %s: %w",
			ErrNoServer, target, TargetEnv, err)
	}
	return fmt.Errorf("copilot: dial %q: %w", target, err)
}
