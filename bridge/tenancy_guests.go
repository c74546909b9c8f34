package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
)

// guest is a call of a tenant that a session is shared with, for as long as it lasts.
type guest struct {
	tenant string
	class  caller.Class
	// end is called once, when the session is no longer shared for what the call does.
	end func()
}

// admit notes a guest, unless what it does is not granted any more. leave is to be called
// when it has gone.
func (pl *place) admit(g *guest) (leave func(), ok bool) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if g.class > pl.shares[g.tenant] {
		return func() {}, false
	}
	if pl.guests == nil {
		pl.guests = map[*guest]struct{}{}
	}
	pl.guests[g] = struct{}{}
	return func() {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		delete(pl.guests, g)
	}, true
}

// dismiss ends the guests whose calls do what is not granted any more.
func (pl *place) dismiss() {
	pl.mu.Lock()
	var gone []*guest
	for g := range pl.guests {
		if g.class > pl.shares[g.tenant] {
			gone = append(gone, g)
			delete(pl.guests, g)
		}
	}
	pl.mu.Unlock()
	for _, g := range gone {
		g.end()
	}
}

// visit has end called when the caller may no longer do with the session what it does: the
// caller of a tenant that it is shared with. leave is to be called when the caller is done.
func (b *Bridge) visit(ctx context.Context, s *session.Session, end func()) (leave func()) {
	c := caller.From(ctx)
	if s.Tenant() == c.Tenant {
		return func() {}
	}
	leave, ok := placeOf(s).admit(&guest{tenant: c.Tenant, class: c.Class, end: end})
	if !ok {
		end()
	}
	return leave
}

// visiting is visit for a call that has one session: its context ends with what somebody is
// told who asks for the session then. done returns the error with which the call ends.
func (b *Bridge) visiting(ctx context.Context, s *session.Session) (_ context.Context, done func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	unshared := session.NotFound(s.ID())
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
