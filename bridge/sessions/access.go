package sessions

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Own returns the session of that id that the caller's own tenant has; nil if it has none. Sessions
// of other tenants have names, not ids, and are not found.
func (st *Store) Own(ctx context.Context, id string) *Entry {
	return st.Get(session.Key(caller.From(ctx).Tenant, id))
}

// FindEntry returns the session that the caller means by an id or, of a session that is shared with
// its tenant, by a name. It is the one look-up for callers: it returns a session of another tenant
// only if that tenant shares it for the class of the call, the caller's tenant has accepted, and the
// server has checked the request by the rules for guests. For a session of another tenant that is
// not shared and for no session it makes the same look-ups and returns the same error.
func (st *Store) FindEntry(ctx context.Context, id string) (*Entry, error) {
	c := caller.From(ctx)
	e := st.Get(tenancy.KeyOf(c.Tenant, id))
	if e == nil {
		return nil, session.NotFound(id)
	}
	if !tenancy.IsShared(id) {
		return e, nil
	}
	granted := e.Shares.Class(c.Tenant)
	if granted == caller.Unclassed {
		return nil, session.NotFound(id)
	}
	if c.Class > granted {
		return nil, fault.New(fault.Forbidden,
			"session %q is shared with the tenant for calls of the class %q, this call has the class %q",
			id, granted, c.Class).WithField("session_id")
	}
	return e, caller.CheckGuest(ctx, e.Session.Tenant())
}

// Find is FindEntry for the session alone.
func (st *Store) Find(ctx context.Context, id string) (*session.Session, error) {
	return sessionOf(st.FindEntry(ctx, id))
}

// sessionOf returns the session of an entry.
func sessionOf(e *Entry, err error) (*session.Session, error) {
	if e == nil {
		return nil, err
	}
	return e.Session, err
}

// OpenEntry returns a session that the caller may use.
func (st *Store) OpenEntry(ctx context.Context, id string) (*Entry, error) {
	if err := tenancy.CheckName(id, "session_id"); err != nil {
		return nil, err
	}
	e, err := st.FindEntry(ctx, id)
	if fault.ReasonOf(err) == fault.SessionNotFound && st.knowsEvicted(ctx, id) {
		return nil, session.Stored(id)
	}
	if err != nil {
		return nil, st.explainDamage(ctx, id, err)
	}
	return e, e.Session.Loader().Usable()
}

// Open is OpenEntry for the session alone.
func (st *Store) Open(ctx context.Context, id string) (*session.Session, error) {
	return sessionOf(st.OpenEntry(ctx, id))
}

// Following is Open for sessions that may still be opening: their callbacks can be answered.
func (st *Store) Following(ctx context.Context, id string) (*session.Session, error) {
	if err := tenancy.CheckName(id, "session_id"); err != nil {
		return nil, err
	}
	s, err := st.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return s, s.Loader().Answerable()
}

// CheckOwn checks the id of a session for calls that only its own tenant may make.
func (st *Store) CheckOwn(ctx context.Context, id, field string) error {
	if !tenancy.IsShared(id) {
		return tenancy.CheckID(id, field)
	}
	if _, err := st.FindEntry(ctx, id); err != nil {
		return fields.Rename(err, "session_id", field)
	}
	return fault.New(fault.Forbidden,
		"session %q belongs to another tenant: only that tenant may do this", id).
		WithField(field)
}

// Visible returns the sessions that the caller may use, in no order: the sessions of its tenant, and the
// sessions that are shared with it.
func (st *Store) Visible(ctx context.Context) []*Entry {
	tenant := caller.From(ctx).Tenant
	return slices.DeleteFunc(st.Usable(), func(e *Entry) bool { return !e.VisibleTo(tenant) })
}

// Snapshot describes a session to callers of a tenant.
func (st *Store) Snapshot(s *session.Session, tenant string) *bridgev1.Session {
	e := st.EntryOf(s)
	if e == nil { // it was removed, and its shares with it
		e = &Entry{Session: s}
	}
	return e.Snapshot(tenant)
}

// AcquireShared calls end when the caller, a guest, loses the right to the session. The caller
// calls release when it is done.
func (st *Store) AcquireShared(ctx context.Context, s *session.Session, end func()) (release func()) {
	c := caller.From(ctx)
	if !tenancy.Foreign(ctx, s) {
		return func() {}
	}
	e := st.EntryOf(s)
	if e == nil {
		end()
		return func() {}
	}
	release, ok := e.Shares.Enter(&tenancy.Guest{Tenant: c.Tenant, Class: c.Class, End: end})
	if !ok {
		end()
	}
	return release
}

// During is AcquireShared for a call that uses one session: its context ends when the caller loses
// the right to the session. done returns the error with which the call ends.
func (st *Store) During(ctx context.Context, s *session.Session) (_ context.Context, done func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	unshared := session.NotFound(tenancy.NameOf(ctx, s))
	release := st.AcquireShared(ctx, s, func() { cancel(unshared) })
	return ctx, func(err error) error {
		release()
		if err != nil && context.Cause(ctx) == error(unshared) {
			err = unshared
		}
		cancel(nil)
		return err
	}
}
