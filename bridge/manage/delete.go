package manage

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"

	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// DeleteSession deletes a session for good.
func (svc *Sessions) DeleteSession(
	ctx context.Context, r *bridgev1.DeleteSessionRequest,
) (*bridgev1.DeleteSessionResponse, error) {
	if err := svc.delete(ctx, r, (*session.Loader).Delete); err != nil {
		return nil, err
	}
	return &bridgev1.DeleteSessionResponse{}, nil
}

// delete deletes a session, an open one with open.
func (svc *Sessions) delete(
	ctx context.Context, r *bridgev1.DeleteSessionRequest,
	open func(l *session.Loader, ctx context.Context, storedByCaller bool) error,
) error {
	e, err := svc.cfg.Store.OpenEntry(ctx, r.GetSessionId())
	if fault.ReasonOf(err) == fault.SessionNotFound && !tenancy.IsShared(r.GetSessionId()) {
		if _, damaged := svc.cfg.Store.Damage(caller.From(ctx).Tenant, r.GetSessionId()); damaged {
			return svc.deleteDamaged(ctx, r)
		}
		return svc.deleteStored(ctx, r)
	}
	if err != nil {
		return err
	}
	profile, _ := e.Profile()
	if err := open(e.Session.Loader(), ctx, profile.SessionFS != nil); err != nil {
		return err
	}
	return svc.cfg.Store.Erase(e)
}

// Delete deletes a session of the caller's tenant that is in the CLI's history only.
func (svc *Sessions) Delete(ctx context.Context, id string) error {
	return svc.deleteStored(ctx, &bridgev1.DeleteSessionRequest{SessionId: id})
}

// deleteStored deletes a session that is disconnected, or in the CLI's history only. The CLI may have no files of a disconnected
// one: it had no message, or another program has deleted them.
func (svc *Sessions) deleteStored(ctx context.Context, r *bridgev1.DeleteSessionRequest) error {
	id := r.GetSessionId()
	p, err := svc.Home(ctx, id, r.GetRuntimeProfile())
	if err != nil {
		return err
	}
	stored, err := svc.stored(ctx, p, id)
	if err != nil {
		return err
	}
	if stored != nil {
		err = svc.deleteFiles(ctx, p, id)
	} else if !svc.disconnected(ctx, id) && (svc.cfg.Store.Own(ctx, id) != nil || !svc.cfg.Store.Has(ctx, id)) {
		err = session.NotFound(id)
	}
	if err != nil {
		return err
	}
	svc.cfg.Audit.Record(ctx, audit.Entry{Action: "session.delete", Outcome: audit.Done, Session: id, Owner: p.Tenant})
	e := svc.cfg.Store.Get(session.Key(p.Tenant, id))
	svc.cfg.Watchers.Deleted(e, p.Tenant, id)
	if e == nil {
		return svc.cfg.Store.RemoveSaved(session.Key(p.Tenant, id))
	}
	return svc.cfg.Store.Erase(e)
}

// deleteFiles has the CLI delete its files of a session.
func (svc *Sessions) deleteFiles(ctx context.Context, p runtime.Profile, id string) error {
	var params jsonobj.Object
	params.SetString("sessionId", id)
	var result json.RawMessage
	if err := svc.cfg.Runtimes.Call(ctx, p, "session.delete", params, &result); err != nil {
		return err
	}
	return session.Refused(result, "session.delete")
}

// deleteDamaged deletes a damaged session, and its history in the CLI.
func (svc *Sessions) deleteDamaged(ctx context.Context, r *bridgev1.DeleteSessionRequest) error {
	id, tenant := r.GetSessionId(), caller.From(ctx).Tenant
	if err := svc.deleteStored(ctx, r); fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	svc.cfg.Audit.Record(ctx, audit.Entry{Action: "session.delete", Outcome: audit.Done, Session: id, Owner: tenant})
	return svc.cfg.Store.RemoveSaved(session.Key(tenant, id))
}

// DisconnectSession ends the use of a session.
func (svc *Sessions) DisconnectSession(
	ctx context.Context, r *bridgev1.DisconnectSessionRequest,
) (*bridgev1.DisconnectSessionResponse, error) {
	if err := svc.cfg.Store.CheckOwn(ctx, r.GetSessionId(), "session_id"); err != nil {
		return nil, err
	}
	e := svc.cfg.Store.Own(ctx, r.GetSessionId())
	if e == nil {
		return nil, session.NotFound(r.GetSessionId())
	}
	switch e.Session.Loader().State() {
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
	done, err := e.Session.Loader().Disconnect(ctx, r.GetForce())
	if err == nil {
		err = svc.cfg.Store.Save(e)
	}
	if err != nil {
		return nil, err
	}
	return &bridgev1.DisconnectSessionResponse{Disconnected: done}, nil
}
