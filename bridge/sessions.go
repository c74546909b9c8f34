package bridge

import (
	"cmp"
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CreateSession makes a session.
func (b *Bridge) CreateSession(ctx context.Context, r *bridgev1.CreateSessionRequest) (*bridgev1.CreateSessionResponse, error) {
	id := cmp.Or(r.GetSessionId(), registry.NewID())
	create := func(ctx context.Context) (*bridgev1.CreateSessionResponse, error) {
		s, _, err := b.createAs(ctx, r, id, "", nil)
		if err != nil {
			return nil, err
		}
		record(ctx, s.Journal().Last())
		return &bridgev1.CreateSessionResponse{Session: s.Snapshot()}, nil
	}
	return operation.Run(ctx, b.operations, operation.Operation[*bridgev1.CreateSessionResponse]{
		Scope: idempotency.Create, ID: r.GetRequestId(), Request: r, Detach: true, Do: create, Settle: b.settleCreate(id, create),
	})
}

// create makes a session, with a participant if one joins. at is where the request is
// in the caller's, with its dot, or empty.
func (b *Bridge) create(ctx context.Context, r *bridgev1.CreateSessionRequest, at string, join *session.Joining) (*session.Session, session.Joined, error) {
	return b.createAs(ctx, r, cmp.Or(r.GetSessionId(), registry.NewID()), at, join)
}

// createAs is create with the id that a session gets whose caller names none.
func (b *Bridge) createAs(ctx context.Context, r *bridgev1.CreateSessionRequest, id, at string, join *session.Joining) (*session.Session, session.Joined, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, session.Joined{}, err
	}
	if err := caller.From(ctx).Require(caller.Own, "making a session"); err != nil {
		return nil, session.Joined{}, err
	}
	o, err := b.creation(ctx, r, at, join.Exactly())
	if err != nil {
		return nil, session.Joined{}, err
	}
	o.Join = join
	withTokens(&o, r.GetConfig())
	profile, err := b.tenants.ReadProfile(ctx, r.GetRuntimeProfile(), at+"runtime_profile", id)
	if err != nil {
		return nil, session.Joined{}, err
	}
	profile.Multi = profile.Multi || join.NeedsConnection() && !b.tenants.Dialed
	if r.GetSessionId() != "" {
		if err := b.checkNew(ctx, profile, id); err != nil {
			return nil, session.Joined{}, inRequest(err, at)
		}
	}
	release, err := b.admission.Session(caller.From(ctx).Tenant)
	if err != nil {
		return nil, session.Joined{}, err
	}
	defer release()
	e, fresh := b.getOrCreate(ctx, id)
	s := e.Session
	if !fresh || s.Journal().Inherited() { // of one whose state is gone
		b.abandon(e, fresh)
		return nil, session.Joined{}, inRequest(exists(id), at)
	}
	b.fleet.SetProfile(e, profile)
	joined, err := s.Create(ctx, o)
	if err != nil {
		b.forget(e)
		return nil, session.Joined{}, inRequest(err, at)
	}
	b.saver.Save(e)
	return s, joined, nil
}

// inRequest gives the fields of a create or resume request, as a session names them, the
// place of that request in the caller's. Fields of the participant that joins with it
// stay.
func inRequest(err error, at string) error {
	for _, field := range []string{"session_id", "config."} {
		err = fields.Rename(err, field, at+field)
	}
	return err
}

// checkNew refuses an id that the CLI's history has: the CLI itself would open that
// session instead.
func (b *Bridge) checkNew(ctx context.Context, p runtime.Profile, id string) error {
	if e := b.known(ctx, id); e != nil && e.Session.State() != session.Deleted {
		return exists(id)
	}
	if d, ok := b.damage(caller.From(ctx).Tenant, id); ok {
		return fault.New(fault.SessionExists, "session %q exists, and is damaged: %s; resume or delete it", id, d.Reason).
			WithField("session_id").With("session_id", id)
	}
	if p.SessionFS != nil {
		return nil // what there is, only its callers know
	}
	stored, err := b.stored(ctx, p, id)
	if err != nil {
		return err
	}
	if stored != nil {
		return exists(id)
	}
	return nil
}

func exists(id string) error {
	return fault.New(fault.SessionExists, "session %q exists", id).WithField("session_id").With("session_id", id)
}

// ResumeSession opens a session of the history, or one that is open.
func (b *Bridge) ResumeSession(ctx context.Context, r *bridgev1.ResumeSessionRequest) (*bridgev1.ResumeSessionResponse, error) {
	return operation.Run(ctx, b.operations, operation.Operation[*bridgev1.ResumeSessionResponse]{
		Scope: idempotency.Resume, ID: r.GetRequestId(), Request: r,
		Do: func(ctx context.Context) (*bridgev1.ResumeSessionResponse, error) {
			s, _, err := b.resume(ctx, r, "", nil)
			if err != nil {
				return nil, err
			}
			record(ctx, s.Journal().Last())
			return &bridgev1.ResumeSessionResponse{Session: s.Snapshot()}, nil
		},
	})
}

func (b *Bridge) resume(ctx context.Context, r *bridgev1.ResumeSessionRequest, at string, join *session.Joining) (*session.Session, session.Joined, error) {
	if err := b.shutdown.Accepting(); err != nil {
		return nil, session.Joined{}, err
	}
	if err := caller.From(ctx).Require(caller.Own, "resuming a session"); err != nil {
		return nil, session.Joined{}, err
	}
	o, err := b.resumption(ctx, r, at, join.Exactly())
	if err != nil {
		return nil, session.Joined{}, err
	}
	o.Join, o.Anew = join, join.Exactly()
	if e := b.known(ctx, r.GetSessionId()); e == nil || e.Session.Usable() != nil {
		release, err := b.admission.Session(caller.From(ctx).Tenant)
		if err != nil {
			return nil, session.Joined{}, err
		}
		defer release()
	}
	e, fresh := b.getOrCreate(ctx, r.GetSessionId())
	s := e.Session
	if fresh || o.Anew && s.State() == session.Disconnected {
		if o.Config, err = b.underlying(ctx, o.Config); err != nil {
			b.abandon(e, fresh)
			return nil, session.Joined{}, inRequest(err, at)
		}
		withTokens(&o, r.GetConfig())
	}
	if r.GetRuntimeProfile() != nil {
		s.Regained(profileMember)
	}
	undo, err := b.fleet.Reprofile(ctx, e, r.GetRuntimeProfile(), join, at+"runtime_profile")
	if err != nil {
		b.abandon(e, fresh)
		return nil, session.Joined{}, err
	}
	joined, err := s.Resume(ctx, o)
	if err != nil {
		undo()
		b.abandon(e, fresh)
		return nil, session.Joined{}, inRequest(err, at)
	}
	b.saver.Save(e)
	return s, joined, nil
}

// DeleteSession deletes a session for good.
func (b *Bridge) DeleteSession(ctx context.Context, r *bridgev1.DeleteSessionRequest) (*bridgev1.DeleteSessionResponse, error) {
	e, err := b.openEntry(ctx, r.GetSessionId())
	if fault.ReasonOf(err) == fault.SessionNotFound && !tenancy.IsShared(r.GetSessionId()) {
		if _, damaged := b.damage(caller.From(ctx).Tenant, r.GetSessionId()); damaged {
			return &bridgev1.DeleteSessionResponse{}, b.deleteDamaged(ctx, r)
		}
		return &bridgev1.DeleteSessionResponse{}, b.deleteStored(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	if err := e.Session.Delete(ctx); err != nil {
		return nil, err
	}
	b.forget(e)
	return &bridgev1.DeleteSessionResponse{}, nil
}

// deleteStored deletes a session that is in the CLI's history only.
func (b *Bridge) deleteStored(ctx context.Context, r *bridgev1.DeleteSessionRequest) error {
	id := r.GetSessionId()
	p, err := b.home(ctx, id, r.GetRuntimeProfile())
	if err != nil {
		return err
	}
	stored, err := b.stored(ctx, p, id)
	if err != nil {
		return err
	}
	if stored == nil {
		return session.NotFound(id)
	}
	rt, err := b.fleet.First(ctx, p)
	if err != nil {
		return err
	}
	var params jsonobj.Object
	params.SetString("sessionId", id)
	result, err := rt.Call(ctx, "session.delete", params.JSON())
	if err != nil {
		return session.Classify(err, "session.delete")
	}
	if err := session.Refused(result, "session.delete"); err != nil {
		return err
	}
	b.cfg.Audit.Record(ctx, audit.Entry{Action: "session.delete", Outcome: audit.Done, Session: id, Owner: p.Tenant})
	e := b.sessions.Get(session.Key(p.Tenant, id))
	b.deleted(e, p.Tenant, id)
	if e != nil {
		b.forget(e)
	} else if d := b.cfg.Directory; d != nil {
		return d.Remove(session.Key(p.Tenant, id))
	}
	return nil
}

// DisconnectSession ends the use of a session.
func (b *Bridge) DisconnectSession(ctx context.Context, r *bridgev1.DisconnectSessionRequest) (*bridgev1.DisconnectSessionResponse, error) {
	if err := b.checkOwn(ctx, r.GetSessionId(), "session_id"); err != nil {
		return nil, err
	}
	e := b.known(ctx, r.GetSessionId())
	if e == nil {
		return nil, session.NotFound(r.GetSessionId())
	}
	switch e.Session.State() {
	case session.Deleted, session.Creating:
		return nil, session.NotFound(r.GetSessionId())
	case session.Disconnected:
		return &bridgev1.DisconnectSessionResponse{Disconnected: true}, nil
	}
	if r.GetForce() {
		if err := caller.From(ctx).Require(caller.Own, "disconnecting others"); err != nil {
			return nil, err
		}
	}
	done, err := e.Session.Disconnect(ctx, r.GetForce())
	if err != nil {
		return nil, err
	}
	return &bridgev1.DisconnectSessionResponse{Disconnected: done}, nil
}
