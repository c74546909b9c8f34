package bridge

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A session whose state on disk cannot be read is not restored, and its data are kept: it is
// listed as damaged. ResumeSession opens it with its journal, and with the configuration of the
// request; DeleteSession deletes it; any other call finds no such session.

// damage returns what is wrong with a tenant's session that was set aside.
func (b *Bridge) damage(tenant, id string) (backend.Damage, bool) {
	if b.cfg.Directory == nil {
		return backend.Damage{}, false
	}
	return b.cfg.Directory.DamageOf(session.Key(tenant, id))
}

// damagedSession describes a damaged session; nil if the session is not damaged.
func (b *Bridge) damagedSession(tenant, id string) *bridgev1.Session {
	d, ok := b.damage(tenant, id)
	if !ok {
		return nil
	}
	return describeDamaged(id, d)
}

// damagedSessions describes the damaged sessions of a tenant.
func (b *Bridge) damagedSessions(tenant string) (out []*bridgev1.Session) {
	if b.cfg.Directory == nil {
		return nil
	}
	for _, d := range b.cfg.Directory.Damaged() {
		id, own := strings.CutPrefix(d.Key, session.Key(tenant, ""))
		if own && tenancy.CheckID(id, "session_id") == nil {
			out = append(out, describeDamaged(id, d))
		}
	}
	return out
}

func describeDamaged(id string, d backend.Damage) *bridgev1.Session {
	return &bridgev1.Session{
		SessionId: id, State: bridgev1.SessionState_SESSION_STATE_DAMAGED, Context: &bridgev1.SessionContext{},
		UpdateTime: timestamppb.New(d.FoundAt),
		Damage:     &bridgev1.SessionDamage{Reason: d.Reason, Place: d.Place, FoundTime: timestamppb.New(d.FoundAt)},
	}
}

// explainDamage says of a session that was not found that it is damaged, if it is.
func (b *Bridge) explainDamage(ctx context.Context, id string, err error) error {
	if fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	d, ok := b.damage(caller.From(ctx).Tenant, id)
	if !ok {
		return err
	}
	return fault.New(fault.SessionNotFound, "session %q is damaged: %s; ResumeSession opens what is left of it, DeleteSession deletes it", id, d.Reason).
		WithField("session_id").With("session_id", id)
}

// deleteDamaged deletes a damaged session, and what the CLI's history has of it.
func (b *Bridge) deleteDamaged(ctx context.Context, r *bridgev1.DeleteSessionRequest) error {
	id, tenant := r.GetSessionId(), caller.From(ctx).Tenant
	if err := b.deleteStored(ctx, r); fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	b.cfg.Audit.Record(ctx, audit.Entry{Action: "session.delete", Outcome: audit.Done, Session: id, Owner: tenant})
	return b.cfg.Directory.Remove(session.Key(tenant, id))
}

// abandon forgets a session that was to be created, if this call has entered it.
func (b *Bridge) abandon(e *registry.Entry, fresh bool) {
	if fresh {
		b.forget(e)
	}
}

// setAside keeps the data that a session found which then could not be opened.
func (b *Bridge) setAside(ctx context.Context, s *session.Session) {
	err := s.Journal().Close(ctx)
	if d := b.cfg.Directory; d != nil {
		err = errors.Join(err, d.SetAside(s.Key(), "the file with its state is missing, and opening the session without it failed"))
	}
	if err != nil {
		b.log.Error("damaged session left where it is", "session_id", s.ID(), "error", err)
	}
}
