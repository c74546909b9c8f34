package shim

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// watchSessions tells the program of the coming and going of sessions, until ctx ends.
func (c *conn) watchSessions(ctx context.Context) {
	client := bridgev1.NewEventServiceClient(c.server.config.Bridge)
	c.again(ctx, "sessions", func() error {
		stream, err := client.WatchSessions(ctx, &bridgev1.WatchSessionsRequest{
			HeartbeatInterval: durationpb.New(heartbeat), Notifications: true,
		})
		if err != nil {
			return err
		}
		for {
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			if r.GetNotification() == nil {
				continue
			}
			text, err := c.server.tables.write(r.GetNotification())
			if err != nil {
				return err
			}
			c.server.counter.typed("session.lifecycle")
			if err := c.rpc.Tell(ctx, "session.lifecycle", text); err != nil {
				return err
			}
		}
	})
}

// forwardTelemetry has the connection's sessions send their telemetry here from now on.
func (c *conn) forwardTelemetry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.telemetry || c.over {
		return
	}
	c.telemetry = true
	c.work.Go(func() { c.watchTelemetry(c.life) })
}

// watchTelemetry passes on the telemetry of the connection's sessions.
func (c *conn) watchTelemetry(ctx context.Context) {
	client := bridgev1.NewRuntimeServiceClient(c.server.config.Bridge)
	c.again(ctx, "telemetry", func() error {
		stream, err := client.WatchTelemetry(ctx, &bridgev1.WatchTelemetryRequest{HeartbeatInterval: durationpb.New(heartbeat)})
		if err != nil {
			return err
		}
		for {
			r, err := stream.Recv()
			if err != nil {
				return err
			}
			event := r.GetEvent()
			if event == nil || event.GetSessionId() != "" && c.participant(event.GetSessionId()) == nil {
				continue
			}
			text, err := c.server.tables.write(event)
			if err != nil {
				return err
			}
			c.server.counter.typed("gitHubTelemetry.event")
			if err := c.rpc.Tell(ctx, "gitHubTelemetry.event", text); err != nil {
				return err
			}
		}
	})
}

// again opens a stream again whenever it ends, until ctx does.
func (c *conn) again(ctx context.Context, what string, follow func() error) {
	r := newRetry(c.server.config.Grace)
	for ctx.Err() == nil {
		err := follow()
		if ctx.Err() != nil {
			return
		}
		c.log.Debug("stream ended", "what", what, "error", err)
		if !r.wait(ctx) {
			r = newRetry(c.server.config.Grace)
		}
	}
}

// newUUID returns a random UUID, as the CLI gives its sessions.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
