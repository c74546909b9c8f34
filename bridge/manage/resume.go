package manage

import (
	"context"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ResumeSession opens a session of the history, or one that is open.
func (svc *Sessions) ResumeSession(
	ctx context.Context, r *bridgev1.ResumeSessionRequest,
) (*bridgev1.ResumeSessionResponse, error) {
	return idempotency.Run(ctx, svc.cfg.Operations, idempotency.Operation[*bridgev1.ResumeSessionResponse]{
		Scope: backend.OpResume, ID: r.GetRequestId(), Request: r,
		Do: idempotency.Blocking(func(ctx context.Context) (*bridgev1.ResumeSessionResponse, error) {
			s, _, err := svc.Resume(ctx, r, "", nil)
			if err != nil {
				return nil, err
			}
			position.Record(ctx, s.Journal().Last())
			return &bridgev1.ResumeSessionResponse{Session: s.Snapshot()}, nil
		}),
	})
}

// Resume resumes a session, with a participant if one joins. at is the path of the request in the
// caller's, with its dot, or empty.
func (svc *Sessions) Resume(
	ctx context.Context, r *bridgev1.ResumeSessionRequest, at string, join *session.Joining,
) (*session.Session, session.Joined, error) {
	if err := svc.cfg.Shutdown.Accepting(); err != nil {
		return nil, session.Joined{}, err
	}
	c, id := caller.From(ctx), r.GetSessionId()
	if err := c.Require(caller.Own, "resuming a session"); err != nil {
		return nil, session.Joined{}, err
	}
	if err := svc.cfg.Store.CheckOwn(ctx, id, at+"session_id"); err != nil {
		return nil, session.Joined{}, err
	}
	o, err := svc.cfg.Parser.Resumption(c, r, at, join.Exactly())
	if err != nil {
		return nil, session.Joined{}, err
	}
	o.Join, o.Anew = join, join.Exactly()
	release, err := svc.admitResumed(ctx, id)
	if err != nil {
		return nil, session.Joined{}, err
	}
	defer release()
	var s *session.Session
	var joined session.Joined
	err = untilFound(func() (err error) {
		s, joined, err = svc.resume(ctx, r, o, at)
		return err
	})
	return s, joined, err
}

// maxResumes bounds how often a session is looked up for one resume. Each further time another caller has meanwhile
// deleted the session, or looked for it in vain.
const maxResumes = 5

// untilFound calls resume, and again while the session that it found was removed meanwhile.
func untilFound(resume func() error) (err error) {
	for range maxResumes {
		if err = resume(); !errors.Is(err, session.ErrGone) {
			return err
		}
	}
	return err
}

// resume is Resume for a request that has been checked.
func (svc *Sessions) resume(
	ctx context.Context, r *bridgev1.ResumeSessionRequest, o session.Opening, at string,
) (*session.Session, session.Joined, error) {
	c := caller.From(ctx)
	e, fresh, err := svc.cfg.Store.GetOrCreate(ctx, c.Tenant, r.GetSessionId())
	if err != nil {
		return nil, session.Joined{}, err
	}
	s := e.Session
	if o.Found = !fresh; fresh {
		s.Loader().Search()
		defer s.Loader().Opened()
	}
	if fresh || o.Anew && s.Loader().State() == session.Disconnected {
		if o.Config, err = svc.cfg.Parser.Underlying(c, o.Config, o.Removed...); err != nil {
			svc.abandon(e, fresh)
			return nil, session.Joined{}, inRequest(err, at)
		}
		request.WithTokens(&o, r.GetConfig())
	}
	undo, err := svc.cfg.Runtimes.Reprofile(ctx, e, r.GetRuntimeProfile(), o.Join, at+"runtime_profile")
	if err != nil {
		svc.abandon(e, fresh)
		return nil, session.Joined{}, err
	}
	var given []string // the secrets of the new profile
	if r.GetRuntimeProfile() != nil {
		given = s.Settings().Regained(sessions.ProfileMember)
	}
	joined, err := s.Loader().Resume(ctx, o)
	if err != nil {
		s.Settings().Lack(given...) // first, so that no load uses the earlier profile without them
		undo()
		svc.abandon(e, fresh)
		return nil, session.Joined{}, inRequest(err, at)
	}
	if err := svc.cfg.Store.Save(e); err != nil {
		return nil, session.Joined{}, err
	}
	return s, joined, nil
}

// admitResumed reserves room for a session that is resumed, unless its callers use it already.
func (svc *Sessions) admitResumed(ctx context.Context, id string) (release func(), err error) {
	if e := svc.cfg.Store.Own(ctx, id); e != nil && e.Session.Loader().Usable() == nil {
		return func() {}, nil
	}
	return svc.cfg.Admission.Session(caller.From(ctx).Tenant)
}

// Reopen resumes a session; a new one is in a runtime of the caller's tenant.
func (svc *Sessions) Reopen(ctx context.Context, id string, o session.Opening) (*session.Session, error) {
	release, err := svc.admitResumed(ctx, id)
	if err != nil {
		return nil, err
	}
	defer release()
	var s *session.Session
	err = untilFound(func() (err error) {
		s, err = svc.reopen(ctx, id, o)
		return err
	})
	return s, err
}

// reopen is Reopen once there is room for the session.
func (svc *Sessions) reopen(ctx context.Context, id string, o session.Opening) (*session.Session, error) {
	c := caller.From(ctx)
	e, fresh, err := svc.cfg.Store.GetOrCreate(ctx, c.Tenant, id)
	if err != nil {
		return nil, err
	}
	if o.Found = !fresh; fresh {
		e.Session.Loader().Search()
		defer e.Session.Loader().Opened()
	}
	if o.Config, err = request.Restrained(c, o.Config); err == nil && fresh {
		o.Config, err = svc.cfg.Parser.Underlying(c, o.Config)
	}
	if err != nil {
		svc.abandon(e, fresh)
		return nil, fields.Rename(err, "config.", "")
	}
	if fresh {
		svc.cfg.Runtimes.SetProfile(e, svc.cfg.Tenants.CallerProfile(ctx))
	}
	if _, err := e.Session.Loader().Resume(ctx, o); err != nil {
		svc.abandon(e, fresh)
		return nil, err
	}
	return e.Session, svc.cfg.Store.Save(e)
}
