package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

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
