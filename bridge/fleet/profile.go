package fleet

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ProfileNow returns the session's profile with what the policy says now.
func (f *Fleet) ProfileNow(e *sessions.Entry) (runtime.Profile, error) {
	return f.cfg.Tenants.Confined(e.Profile())
}

// SetProfile gives a session another profile; undo restores the previous one.
func (f *Fleet) SetProfile(e *sessions.Entry, p runtime.Profile) (undo func()) {
	before, _ := e.Profile()
	restore := e.SetProfile(p, f.cfg.Tenants.ProfileOf(p.Tenant))
	e.Session.Settings().RequireHandlers(tenancy.RequiredCallbacks(p)...)
	return func() {
		restore()
		e.Session.Settings().RequireHandlers(tenancy.RequiredCallbacks(before)...)
	}
}

// Reprofile gives a session that is resumed the profile that its caller wants; undo restores
// the previous one. A session that is loaded cannot move. m is nil or at the path at of the request.
func (f *Fleet) Reprofile(
	ctx context.Context, e *sessions.Entry, m *bridgev1.RuntimeProfile, join *session.Joining, at string,
) (undo func(), err error) {
	s := e.Session
	p, _ := e.Profile()
	if m != nil {
		if p, err = f.cfg.Tenants.ReadProfile(ctx, m, at, s.ID()); err != nil {
			return nil, err
		}
	}
	if s.Loader().State() != session.Loaded {
		p.Multi = p.Multi || join.NeedsConnection() && !f.cfg.Tenants.Dialed
	}
	if moves, err := f.moves(e, p); err != nil {
		return nil, err
	} else if s.Loader().State() == session.Loaded && moves {
		return nil, fault.New(fault.SessionBusy, "session %q is loaded in a runtime of another profile", s.ID()).WithField(at)
	}
	return f.SetProfile(e, p), nil
}

// moves reports whether a profile, in force now, is that of another runtime than the session's.
func (f *Fleet) moves(e *sessions.Entry, p runtime.Profile) (bool, error) {
	before, err := f.ProfileNow(e)
	if err != nil {
		return false, err
	}
	after, err := f.cfg.Tenants.Confined(p, f.cfg.Tenants.ProfileOf(p.Tenant))
	return placement.Key(before) != placement.Key(after), err
}
