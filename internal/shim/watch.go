package shim

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// feeds pass on what the bridge tells a connection beside its sessions' own streams. Each has a goroutine, which ends
// with ctx.
type feeds struct {
	ctx      context.Context // of the connection
	server   *Server
	log      *slog.Logger
	sessions *sessions
	rpc      *rpcconn.Conn
	work     sync.WaitGroup

	mu        sync.Mutex
	telemetry bool // it is forwarded
}

// start starts the feeds that every connection has.
func (f *feeds) start() {
	f.work.Go(f.watchSessions)
	f.work.Go(f.watchHostEvents)
}

// wait waits for the end of all feeds.
func (f *feeds) wait() { f.work.Wait() }

// forwarding reports whether the connection's sessions send their telemetry here.
func (f *feeds) forwarding() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.telemetry
}

// watchSessions tells the program of the coming and going of sessions.
func (f *feeds) watchSessions() {
	client := bridgev1.NewEventServiceClient(f.server.config.Bridge)
	f.again("sessions", func() error {
		stream, err := client.WatchSessions(f.ctx, &bridgev1.WatchSessionsRequest{
			HeartbeatInterval: durationpb.New(heartbeat), Notifications: true,
		})
		return each(stream, err, func(r *bridgev1.WatchSessionsResponse) error {
			if r.GetNotification() == nil {
				return nil
			}
			return f.notify("session.lifecycle", r.GetNotification())
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
func (f *feeds) notify(method string, params proto.Message) error {
	text, err := f.server.tables.write(params)
	if err != nil {
		return err
	}
	f.server.counter.typed(method)
	return f.rpc.Tell(f.ctx, method, text)
}

// forwardTelemetry has the connection's sessions send their telemetry here from now on.
func (f *feeds) forwardTelemetry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.telemetry || f.ctx.Err() != nil {
		return
	}
	f.telemetry = true
	f.work.Go(f.watchTelemetry)
}

// watchTelemetry passes on the telemetry of the connection's sessions.
func (f *feeds) watchTelemetry() {
	client := bridgev1.NewRuntimeServiceClient(f.server.config.Bridge)
	f.again("telemetry", func() error {
		stream, err := client.WatchTelemetry(f.ctx,
			&bridgev1.WatchTelemetryRequest{HeartbeatInterval: durationpb.New(heartbeat)})
		return each(stream, err, func(r *bridgev1.WatchTelemetryResponse) error {
			event := r.GetEvent()
			if event == nil || event.GetSessionId() != "" && f.sessions.participant(event.GetSessionId()) == nil {
				return nil
			}
			return f.notify("gitHubTelemetry.event", event)
		})
	})
}

// hostEvent is the notification by which the CLI tells its host what happened in it.
const hostEvent = "host.event"

// watchHostEvents passes on what the CLI tells of the connection's sessions, and of none.
func (f *feeds) watchHostEvents() {
	client := bridgev1.NewRuntimeServiceClient(f.server.config.Bridge)
	f.again("host events", func() error {
		stream, err := client.WatchHostEvents(f.ctx,
			&bridgev1.WatchHostEventsRequest{HeartbeatInterval: durationpb.New(heartbeat)})
		return each(stream, err, func(r *bridgev1.WatchHostEventsResponse) error { return f.tellHostEvent(r) })
	})
}

// tellHostEvent passes on a host event, if the CLI would. It omits actions of the bridge itself and events without
// their content.
func (f *feeds) tellHostEvent(r *bridgev1.WatchHostEventsResponse) error {
	event, id := r.GetEvent(), r.GetEvent().GetScope().GetSessionId()
	if event == nil || r.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE || id != "" && !f.sessions.hears(id) {
		return nil
	}
	if r.GetPayloadWithheld() {
		f.log.Info("the bridge withheld a host event", "kind", event.GetKind())
		return nil
	}
	return f.notify(hostEvent, event)
}

// again opens a stream again whenever it ends, until the connection does, or the bridge has no such
// stream for the caller.
func (f *feeds) again(what string, follow func() error) {
	r := newRetry(f.server.config.Grace)
	for f.ctx.Err() == nil {
		err := follow()
		if f.ctx.Err() != nil {
			return
		}
		f.log.Debug("stream ended", "what", what, "error", err)
		switch status.Code(err) {
		case codes.Unimplemented, codes.PermissionDenied:
			return
		}
		if !r.wait(f.ctx) {
			r = newRetry(f.server.config.Grace)
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
