// Package servertest runs a server of package server for a test, with a unix socket, the layers and the codec of a
// real one.
package servertest

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/copilot-grpc/copilot-grpc/server"
)

// Running is a server that runs until its test ends.
type Running struct {
	// Server is the server.
	Server *server.Server
	// Conn is a connection to its first address.
	Conn *grpc.ClientConn
	// Stop stops the server and returns the result of Run. It may be called again.
	Stop func() error
}

// Start runs a server for the services; by default on a unix socket and with a silent log.
func Start(tb testing.TB, c server.Config, services ...server.Service) *Running {
	tb.Helper()
	if len(c.Listen) == 0 {
		c.Listen = []string{"unix:" + SocketPath(tb)}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	c.Services = append(c.Services, services...)
	s, err := server.New(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	r := &Running{Server: s, Stop: sync.OnceValue(func() error {
		cancel()
		return <-result
	})}
	tb.Cleanup(func() { _ = r.Stop() })
	r.Conn = r.Dial(tb, 0)
	return r
}

// Dial returns a new connection to the server's i-th address.
func (r *Running) Dial(tb testing.TB, i int, options ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	addr := r.Server.Addrs()[i]
	target := "passthrough:///" + addr.String()
	if addr.Network() == "unix" {
		target = "unix://" + addr.String()
	}
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// SocketPath returns a path for a socket. Its folder has a short name, because paths of sockets have a length limit
// that testing's folders exceed.
func SocketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "srv")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}
