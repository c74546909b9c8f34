package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// caller is a client of the server with a separate connection, which can be cut.
type caller struct {
	n         int
	conn      *grpc.ClientConn
	sessions  bridgev1.SessionServiceClient
	events    bridgev1.EventServiceClient
	callbacks bridgev1.CallbackServiceClient

	mu    sync.Mutex
	wires []net.Conn
	down  bool // nothing can be dialled
}

var errDown = errors.New("the network is down")

func newCaller(w *world, n int) (*caller, error) {
	c := &caller{n: n}
	var err error
	c.conn, err = grpc.NewClient("passthrough:///chaos",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.3,
				MaxDelay: 30 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}),
		// Small, so that a reader that stops fills it soon.
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(1<<20),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
			error) {
			return c.dial(ctx, w.dir+"/s")
		}),
	)
	if err != nil {
		return nil, err
	}
	c.sessions = bridgev1.NewSessionServiceClient(c.conn)
	c.events = bridgev1.NewEventServiceClient(c.conn)
	c.callbacks = bridgev1.NewCallbackServiceClient(c.conn)
	return c, nil
}

func (c *caller) dial(ctx context.Context, socket string) (net.Conn, error) {
	wire, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		_ = wire.Close()
		return nil, errDown
	}
	c.wires = append(c.wires, wire)
	return wire, nil
}

// cut breaks the connections off; with down no new ones can be made until up.
func (c *caller) cut(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	for _, wire := range c.wires {
		_ = wire.Close() // it may be closed already
	}
	c.wires = nil
}

func (c *caller) up() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

func (c *caller) close() {
	c.cut(true)
	_ = c.conn.Close() // it can only have been closed before
}

// reasonOf is the reason of a status, "" if it does not come from the server.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func errOrOK(err error) any {
	if err == nil {
		return "ok"
	}
	if reason := reasonOf(err); reason != "" {
		return reason + ": " + status.Convert(err).Message()
	}
	return err
}
