package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
)

// nothing is a service without methods.
type nothing struct{}

func (nothing) Register(grpc.ServiceRegistrar) {}

func newServer(t *testing.T, addresses ...string) *Server {
	t.Helper()
	s, err := New(t.Context(),
		Config{Listen: addresses, Services: []Service{nothing{}},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// When one listener fails the server stops as a whole, and says why.
func TestRunEndsWhenAListenerFails(t *testing.T) {
	t.Parallel()
	s := newServer(t, "127.0.0.1:0", "127.0.0.1:0")
	if err := s.listeners[1].Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Run = %v", err)
	}
	if _, err := net.Dial("tcp", s.listeners[0].Addr().String()); err == nil {
		t.Error("the other listener is still open")
	}
}

// An end that comes before the beginning is an orderly one.
func TestRunWithAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newServer(t, "127.0.0.1:0")
	if err := s.Run(ctx); err != nil {
		t.Errorf("Run = %v", err)
	}
	if _, err := net.Dial("tcp", s.listeners[0].Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}
