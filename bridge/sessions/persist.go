package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Save saves a session now. If another server may continue the session, the error is SESSION_UNAVAILABLE: with
// backend.ErrStale if one does, otherwise because the storage fails. A failure of a data directory is only logged. What is not
// saved is saved later.
func (st *Store) Save(e *Entry) error {
	return unsaved(e, st.saver.Save(e))
}

// unsaved returns the error for callers if the storage has refused a change, or fails and another server may continue the
// session with what was stored before; nil for failures of a data directory.
func unsaved(e *Entry, err error) error {
	switch {
	case errors.Is(err, backend.ErrStale):
		err = fault.Wrap(err, fault.SessionUnavailable, "session %q has moved to another server", e.Session.ID()).
			With("session_id", e.Session.ID())
	case err != nil && e.Session.Journal().Remote():
		err = fault.Wrap(err, fault.SessionUnavailable, "the storage does not take changes of session %q now", e.Session.ID()).
			WithRetry(time.Second).With("session_id", e.Session.ID())
	default:
		return nil
	}
	return err
}

// SaveDirty saves the changed sessions now.
func (st *Store) SaveDirty() { st.saver.SaveDirty() }

// MarkDirty has Run save a session. It does not wait.
func (st *Store) MarkDirty(e *Entry) {
	if st.cfg.Directory != nil {
		st.saver.MarkDirty(e)
	}
}

// save writes the states of sessions. later reports that no call waits for that. Only the saver calls it.
func (st *Store) save(entries []*Entry, later bool) error {
	d := st.cfg.Directory
	if d == nil {
		return nil
	}
	states := make([]backend.State, 0, len(entries))
	for _, e := range entries {
		current := st.table.Holds(e)
		r, ok := st.recordOf(e)
		if !current || !ok {
			continue
		}
		text, err := json.Marshal(r)
		if err != nil {
			st.log.Error("saving a session failed", "session_id", e.Session.ID(), "error", err)
			continue
		}
		states = append(states, backend.State{Key: e.Session.Key(), Data: text, Later: later})
	}
	if len(states) == 0 {
		return nil
	}
	err := d.Save(states...)
	if err != nil {
		st.log.Error("saving sessions failed", "error", err)
	}
	return err
}

// recordOf returns the saved form of a session; ok is false if it has none.
func (st *Store) recordOf(e *Entry) (r record, ok bool) {
	s := e.Session
	state, secret := s.Save(st.cfg.Defaults, st.cfg.Providers(caller.HostTenant))
	if state == nil {
		return record{}, false
	}
	r = record{Tenant: s.Tenant(), Session: state, SharedWith: e.Shares.Records(), Boxed: e.Sandboxed.Load()}
	profile, _ := e.Profile()
	r.Profile, r.Lacks = withoutSecrets(profile, st.cfg.Tenants.ProfileOf(profile.Tenant))
	st.seal(s.Key(), &r, secret, profile)
	return r, true
}

// Export returns what an archive has of a session.
func (st *Store) Export(e *Entry) (session.Exported, error) {
	return e.Session.Export(st.cfg.Defaults, st.cfg.Providers(caller.HostTenant))
}

// removeState removes the journal of a session and its saved state. It sets aside the data of a
// session that could not be opened.
func (st *Store) removeState(s *session.Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.Loader().State() == session.Creating && s.Journal().Inherited() {
		st.setAside(ctx, s)
		return nil
	}
	remove := s.Journal().Remove
	if s.Journal().Remote() { // the directory removes it, behind what only the owner of the session can remove
		remove = s.Journal().Close
	}
	err := remove(ctx)
	if d := st.cfg.Directory; err == nil && d != nil {
		err = d.Remove(s.Key())
	}
	if err != nil {
		st.log.Error("removing a session from disk failed", "session_id", s.ID(), "error", err)
	}
	return err
}

// RemoveSaved removes what the directory has of a session that is not in memory. What the session used of models stays
// in Deleted.
func (st *Store) RemoveSaved(key string) error {
	if st.cfg.Directory == nil {
		return nil
	}
	var r record
	state, err := st.cfg.Directory.Session(key)
	if err == nil && state != nil {
		err = json.Unmarshal(state, &r)
	}
	if err != nil {
		st.log.Warn("the usage of a deleted session is lost", "session_id", key, "error", err)
	}
	if err := st.cfg.Directory.Remove(key); err != nil {
		return err
	}
	st.evicted.remove(key)
	st.Deleted.add(r.Tenant, session.SavedUsage(r.Session))
	return nil
}

// setAside sets aside the data of a session that could not be opened.
func (st *Store) setAside(ctx context.Context, s *session.Session) {
	err := s.Journal().Close(ctx)
	if d := st.cfg.Directory; d != nil {
		const why = "the file with its state is missing, and opening the session without it failed"
		err = errors.Join(err, d.SetAside(s.Key(), why))
	}
	if err != nil {
		st.log.Error("setting a damaged session aside failed", "session_id", s.ID(), "error", err)
	}
}

// Close saves all sessions and closes their journals.
func (st *Store) Close() {
	if st.cfg.Directory == nil {
		return
	}
	st.saver.SaveDirty()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range st.Sessions() {
		if err := s.Journal().Close(ctx); err != nil {
			st.log.Error("closing a journal failed", "session_id", s.Key(), "error", err)
		}
		s.Prompts().Close()
	}
}

// A session whose state on disk cannot be read is not restored, and its data are set aside: it is
// listed as damaged. ResumeSession opens it with its journal, and with the configuration of the
// request; DeleteSession deletes it; any other call finds no such session.

// Damage returns why a tenant's session was set aside.
func (st *Store) Damage(tenant, id string) (backend.Damage, bool) {
	if st.cfg.Directory == nil {
		return backend.Damage{}, false
	}
	return st.cfg.Directory.DamageOf(session.Key(tenant, id))
}

// Damaged describes a damaged session; nil if the session is not damaged.
func (st *Store) Damaged(tenant, id string) *bridgev1.Session {
	d, ok := st.Damage(tenant, id)
	if !ok {
		return nil
	}
	return describeDamaged(id, d)
}

// AllDamaged describes the damaged sessions of a tenant.
func (st *Store) AllDamaged(tenant string) (out []*bridgev1.Session) {
	if st.cfg.Directory == nil {
		return nil
	}
	for _, d := range st.cfg.Directory.Damaged() {
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
		Damage:     &bridgev1.SessionDamage{Reason: d.Reason, Path: d.Place, DetectTime: timestamppb.New(d.FoundAt)},
	}
}

// explainDamage says of a session that was not found that it is damaged, if it is.
func (st *Store) explainDamage(ctx context.Context, id string, err error) error {
	if fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	d, ok := st.Damage(caller.From(ctx).Tenant, id)
	if !ok {
		return err
	}
	return fault.New(fault.SessionNotFound,
		"session %q is damaged: %s; ResumeSession opens what can be read, DeleteSession deletes it", id, d.Reason).
		WithField("session_id").With("session_id", id)
}
