package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// visit has end called when the caller may no longer do with the session what it does: the
// caller of a tenant that it is shared with. leave is to be called when the caller is done.
func (b *Bridge) visit(ctx context.Context, s *session.Session, end func()) (leave func()) {
	c := caller.From(ctx)
	if !tenancy.Foreign(ctx, s) {
		return func() {}
	}
	e := b.entryOf(s)
	if e == nil {
		end()
		return func() {}
	}
	leave, ok := e.Shares.Enter(&share.Guest{Tenant: c.Tenant, Class: c.Class, End: end})
	if !ok {
		end()
	}
	return leave
}

// visiting is visit for a call that has one session: its context ends with what somebody is
// told who asks for the session then. done returns the error with which the call ends.
func (b *Bridge) visiting(ctx context.Context, s *session.Session) (_ context.Context, done func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	unshared := session.NotFound(tenancy.NameOf(ctx, s))
	leave := b.visit(ctx, s, func() { cancel(unshared) })
	return ctx, func(err error) error {
		leave()
		if err != nil && context.Cause(ctx) == error(unshared) {
			err = unshared
		}
		cancel(nil)
		return err
	}
}
