package shim

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The connection passes on what the bridge tells it beside its sessions' own streams. Each such stream has a goroutine,
// which ends with the connection.

// forwarding reports whether the connection's sessions send their telemetry here.
func (c *conn) forwarding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.telemetry
}

// watchSessions tells the program of the coming and going of sessions.
func (c *conn) watchSessions() {
	client := bridgev1.NewEventServiceClient(c.server.config.Bridge)
	c.again("sessions", func() error {
		stream, err := client.WatchSessions(c.life, &bridgev1.WatchSessionsRequest{
			HeartbeatInterval: durationpb.New(heartbeat), Notifications: true,
		})
		return each(stream, err, func(r *bridgev1.WatchSessionsResponse) error {
			if r.GetNotification() == nil {
				return nil
			}
			return c.notify("session.lifecycle", r.GetNotification())
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
func (c *conn) notify(method string, params proto.Message) error {
	text, err := c.server.tables.write(params)
	if err != nil {
		return err
	}
	c.server.counter.typed(method)
	return c.rpc.Tell(c.life, method, text)
}

// forwardTelemetry has the connection's sessions send their telemetry here from now on.
func (c *conn) forwardTelemetry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.telemetry || c.life.Err() != nil {
		return
	}
	c.telemetry = true
	c.feeds.Go(c.watchTelemetry)
}

// watchTelemetry passes on the telemetry of the connection's sessions.
func (c *conn) watchTelemetry() {
	client := bridgev1.NewRuntimeServiceClient(c.server.config.Bridge)
	c.again("telemetry", func() error {
		stream, err := client.WatchTelemetry(c.life,
			&bridgev1.WatchTelemetryRequest{HeartbeatInterval: durationpb.New(heartbeat)})
		return each(stream, err, func(r *bridgev1.WatchTelemetryResponse) error {
			event := r.GetEvent()
			if event == nil || event.GetSessionId() != "" && c.sessions.participant(event.GetSessionId()) == nil {
				return nil
			}
			return c.notify("gitHubTelemetry.event", event)
		})
	})
}

// hostEvent is the notification by which the CLI tells its host what happened in it.
const hostEvent = "host.event"

// watchHostEvents passes on what the CLI tells of the connection's sessions, and of none.
func (c *conn) watchHostEvents() {
	client := bridgev1.NewRuntimeServiceClient(c.server.config.Bridge)
	c.again("host events", func() error {
		stream, err := client.WatchHostEvents(c.life,
			&bridgev1.WatchHostEventsRequest{HeartbeatInterval: durationpb.New(heartbeat)})
		return each(stream, err, func(r *bridgev1.WatchHostEventsResponse) error { return c.tellHostEvent(r) })
	})
}

// tellHostEvent passes on a host event, if the CLI would. It omits actions of the bridge itself and events without
// their content.
func (c *conn) tellHostEvent(r *bridgev1.WatchHostEventsResponse) error {
	event, id := r.GetEvent(), r.GetEvent().GetScope().GetSessionId()
	if event == nil || r.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE || id != "" && !c.sessions.hears(id) {
		return nil
	}
	if r.GetPayloadWithheld() {
		c.log.Info("the bridge withheld a host event", "kind", event.GetKind())
		return nil
	}
	return c.notify(hostEvent, event)
}

// again opens a stream again whenever it ends, until the connection does, or the bridge has no such
// stream for the caller.
func (c *conn) again(what string, follow func() error) {
	r := newRetry(c.server.config.Grace)
	for c.life.Err() == nil {
		err := follow()
		if c.life.Err() != nil {
			return
		}
		c.log.Debug("stream ended", "what", what, "error", err)
		switch status.Code(err) {
		case codes.Unimplemented, codes.PermissionDenied:
			return
		}
		if !r.wait(c.life) {
			r = newRetry(c.server.config.Grace)
		}
	}
}
