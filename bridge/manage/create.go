package manage

import (
	"cmp"
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CreateSession creates a session.
func (svc *Sessions) CreateSession(
	ctx context.Context, r *bridgev1.CreateSessionRequest,
) (*bridgev1.CreateSessionResponse, error) {
	id := IDOf(ctx, backend.OpCreate, r)
	create := func(ctx context.Context) (*bridgev1.CreateSessionResponse, error) {
		s, _, err := svc.Create(ctx, r, id, "", nil)
		if err != nil {
			return nil, err
		}
		position.Record(ctx, s.Journal().Last())
		return &bridgev1.CreateSessionResponse{Session: s.Snapshot()}, nil
	}
	return idempotency.Run(ctx, svc.cfg.Operations, idempotency.Operation[*bridgev1.CreateSessionResponse]{
		Scope: backend.OpCreate, ID: r.GetRequestId(), Request: r, Detach: true, Do: idempotency.Blocking(create),
		Settle: svc.settleCreate(id, create),
	})
}

// settleCreate finds a session whose creation was interrupted by the id that was chosen for it, or
// else creates it.
func (svc *Sessions) settleCreate(
	id string, create func(context.Context) (*bridgev1.CreateSessionResponse, error),
) *idempotency.Settlement[*bridgev1.CreateSessionResponse] {
	return &idempotency.Settlement[*bridgev1.CreateSessionResponse]{
		Before: func(context.Context) []byte { return []byte(id) },
		Find: func(ctx context.Context, chosen []byte) (*bridgev1.CreateSessionResponse, error) {
			if s, err := svc.cfg.Store.Open(ctx, string(chosen)); err == nil {
				return &bridgev1.CreateSessionResponse{Session: s.Snapshot()}, nil
			}
			return create(ctx)
		},
	}
}

// IDOf returns the id of the session that a call creates: the caller's, or the one of its request id, or a random one.
func IDOf(ctx context.Context, call string, r *bridgev1.CreateSessionRequest) string {
	key := backend.Key{Tenant: caller.From(ctx).Tenant, Operation: call, ID: r.GetRequestId()}
	return cmp.Or(r.GetSessionId(), key.SessionID(), sessions.NewID())
}

// Create creates a session, with a participant if one joins. id is the session's if the request has none. at is the path
// of the request in the caller's, with its dot, or empty.
func (svc *Sessions) Create(
	ctx context.Context, r *bridgev1.CreateSessionRequest, id, at string, join *session.Joining,
) (*session.Session, session.Joined, error) {
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return nil, session.Joined{}, err
	}
	c := caller.From(ctx)
	if err := c.Require(caller.Own, "making a session"); err != nil {
		return nil, session.Joined{}, err
	}
	o, err := svc.cfg.Parser.Creation(c, r, at, join.Exactly())
	if err != nil {
		return nil, session.Joined{}, err
	}
	o.Join = join
	request.WithTokens(&o, r.GetConfig())
	profile, err := svc.cfg.Tenants.ReadProfile(ctx, r.GetRuntimeProfile(), at+"runtime_profile", id)
	if err != nil {
		return nil, session.Joined{}, err
	}
	profile.Multi = profile.Multi || join.NeedsConnection() && !svc.cfg.Tenants.Dialed
	if r.GetSessionId() != "" {
		if err := svc.CheckNew(ctx, profile, id); err != nil {
			return nil, session.Joined{}, inRequest(err, at)
		}
	}
	s, joined, err := svc.insert(ctx, id, profile, o)
	return s, joined, inRequest(err, at)
}

// Insert creates a session in a runtime of the caller's tenant. The configuration of o is the
// caller's.
func (svc *Sessions) Insert(ctx context.Context, id string, o session.Opening) (*session.Session, error) {
	var err error
	if o.Config, err = svc.cfg.Parser.Underlying(caller.From(ctx), o.Config); err != nil {
		return nil, fields.Rename(err, "config.", "")
	}
	s, _, err := svc.insert(ctx, id, svc.cfg.Tenants.CallerProfile(ctx), o)
	return s, err
}

// insert creates a session in a runtime of a profile.
func (svc *Sessions) insert(
	ctx context.Context, id string, p runtime.Profile, o session.Opening,
) (*session.Session, session.Joined, error) {
	tenant := caller.From(ctx).Tenant
	release, err := svc.cfg.Admission.Session(tenant)
	if err != nil {
		return nil, session.Joined{}, err
	}
	defer release()
	e, err := svc.reserve(ctx, tenant, id)
	if err != nil {
		return nil, session.Joined{}, err
	}
	defer e.Session.Loader().Opened()
	svc.cfg.Runtimes.SetProfile(e, p)
	joined, err := e.Session.Loader().Create(ctx, o)
	if err != nil {
		svc.cfg.Store.Remove(e)
		return nil, session.Joined{}, err
	}
	if err := svc.cfg.Store.Save(e); err != nil {
		return nil, session.Joined{}, err
	}
	return e.Session, joined, nil
}

// reserve makes the entry of a new session, which the caller then opens. While a resume looks for a session of that id, reserve waits for the end of
// that.
func (svc *Sessions) reserve(ctx context.Context, tenant, id string) (*sessions.Entry, error) {
	for range maxResumes {
		e, fresh, err := svc.cfg.Store.GetOrCreate(ctx, tenant, id)
		switch {
		case err != nil:
			return nil, err
		case fresh && e.Session.Journal().Inherited(): // of one whose state is gone
			e.Session.Loader().Opened()
			svc.abandon(e, fresh)
			return nil, exists(id)
		case fresh:
			return e, nil
		}
		if there, err := e.Session.Loader().Exists(ctx); err != nil || there {
			return nil, cmp.Or(err, exists(id))
		}
	}
	return nil, exists(id)
}

// abandon removes a session that was not opened, if this call has created it.
func (svc *Sessions) abandon(e *sessions.Entry, fresh bool) {
	if fresh {
		svc.cfg.Store.Remove(e)
	}
}

// inRequest prefixes the fields of a create or resume request in err with the path of that request
// in the caller's. Fields of the participant that joins with it are not changed.
func inRequest(err error, at string) error {
	for _, field := range []string{"session_id", "config.", "update_mask"} {
		err = fields.Rename(err, field, at+field)
	}
	return err
}

// CheckNew refuses the id of a session that exists in the bridge or in the history of a profile: the
// CLI would open that session instead.
func (svc *Sessions) CheckNew(ctx context.Context, p runtime.Profile, id string) error {
	if e := svc.cfg.Store.Own(ctx, id); e != nil {
		if there, err := e.Session.Loader().Exists(ctx); err != nil || there {
			return cmp.Or(err, exists(id))
		}
	}
	if d, ok := svc.cfg.Store.Damage(caller.From(ctx).Tenant, id); ok {
		return fault.New(fault.SessionExists,
			"session %q exists, and is damaged: %s; resume or delete it", id, d.Reason).
			WithField("session_id").With("session_id", id)
	}
	if p.SessionFS != nil {
		return nil // only its callers know their files
	}
	stored, err := svc.stored(ctx, p, id)
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
