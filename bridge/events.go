package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Subscribe streams the events of sessions.
func (b *Bridge) Subscribe(ctx context.Context, r *bridgev1.SubscribeRequest, sink frame.Sink) error {
	return b.streams.Subscribe(ctx, r, sink)
}

// ListEvents reads the journal, a page at a time.
func (b *Bridge) ListEvents(ctx context.Context, r *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error) {
	return b.streams.List(ctx, r)
}

// ReadEvent reads the whole JSON of one event.
func (b *Bridge) ReadEvent(ctx context.Context, r *bridgev1.ReadEventRequest, send func(*bridgev1.ReadEventResponse) error) error {
	return b.streams.Read(ctx, r, send)
}

// finder finds sessions for streams.
type finder struct{ b *Bridge }

// Open implements stream.Sessions.
func (f finder) Open(ctx context.Context, id string) (*session.Session, error) {
	return f.b.open(ctx, id)
}

// Following implements stream.Sessions.
func (f finder) Following(ctx context.Context, id string) (*session.Session, error) {
	return f.b.asking(ctx, id)
}

// Snapshot implements stream.Sessions.
func (f finder) Snapshot(s *session.Session, tenant string) *bridgev1.Session {
	return snapshotAs(s, f.b.entryOf(s), tenant)
}

// Visit implements stream.Sessions.
func (f finder) Visit(ctx context.Context, s *session.Session, end func()) (leave func()) {
	return f.b.visit(ctx, s, end)
}
