package shim

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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
		return each(stream, err, func(r *bridgev1.WatchSessionsResponse) error {
			if r.GetNotification() == nil {
				return nil
			}
			return c.notify(ctx, "session.lifecycle", r.GetNotification())
		})
	})
}

// each has f take what comes on a stream, if it could be opened, until it ends or f fails.
func each[F any](stream grpc.ServerStreamingClient[F], err error, f func(*F) error) error {
	for err == nil {
		var r *F
		if r, err = stream.Recv(); err == nil {
			err = f(r)
		}
	}
	return err
}

// notify sends the program a notification that came typed.
func (c *conn) notify(ctx context.Context, method string, params proto.Message) error {
	text, err := c.server.tables.write(params)
	if err != nil {
		return err
	}
	c.server.counter.typed(method)
	return c.rpc.Tell(ctx, method, text)
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
		return each(stream, err, func(r *bridgev1.WatchTelemetryResponse) error {
			event := r.GetEvent()
			if event == nil || event.GetSessionId() != "" && c.participant(event.GetSessionId()) == nil {
				return nil
			}
			return c.notify(ctx, "gitHubTelemetry.event", event)
		})
	})
}

// hostEvent is the notification by which the CLI tells its host what happened in it.
const hostEvent = "host.event"

// watchHostEvents passes on what the CLI tells of the connection's sessions, and of none.
func (c *conn) watchHostEvents(ctx context.Context) {
	client := bridgev1.NewRuntimeServiceClient(c.server.config.Bridge)
	c.again(ctx, "host events", func() error {
		stream, err := client.WatchHostEvents(ctx, &bridgev1.WatchHostEventsRequest{HeartbeatInterval: durationpb.New(heartbeat)})
		return each(stream, err, func(r *bridgev1.WatchHostEventsResponse) error { return c.tellHostEvent(ctx, r) })
	})
}

// tellHostEvent passes on a host event, if the CLI would. It omits actions of the bridge itself and events without
// their content.
func (c *conn) tellHostEvent(ctx context.Context, r *bridgev1.WatchHostEventsResponse) error {
	event, id := r.GetEvent(), r.GetEvent().GetScope().GetSessionId()
	if event == nil || r.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE || id != "" && !c.hears(id) {
		return nil
	}
	if r.GetPayloadWithheld() {
		c.log.Info("the bridge withheld a host event", "kind", event.GetKind())
		return nil
	}
	return c.notify(ctx, hostEvent, event)
}

// again opens a stream again whenever it ends, until ctx does, or the bridge has no such
// stream for the caller.
func (c *conn) again(ctx context.Context, what string, follow func() error) {
	r := newRetry(c.server.config.Grace)
	for ctx.Err() == nil {
		err := follow()
		if ctx.Err() != nil {
			return
		}
		c.log.Debug("stream ended", "what", what, "error", err)
		switch status.Code(err) {
		case codes.Unimplemented, codes.PermissionDenied:
			return
		}
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
