package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// record is the saved form of a session.
type record struct {
	// Tenant owns the session; empty for the host's own tenant.
	Tenant string `json:"tenant,omitempty"`
	// SharedWith are the tenants that it is shared with or offered to.
	SharedWith map[string]tenancy.SavedShare `json:"shared_with,omitempty"`
	// Shares is how versions before the consent of the other tenant saved that: the class of calls
	// by tenant. It is read, never written, so that such a version shares nothing with a tenant
	// that has not accepted.
	Shares  map[string]string `json:"shares,omitempty"`
	Session json.RawMessage   `json:"session"`
	// Profile is its runtime's, if that is not the tenant's default. Its secrets are left out.
	Profile *runtime.Profile `json:"profile,omitempty"`
	Lacks   []string         `json:"lacks,omitempty"`
	// Sealed has the secrets that Session and Profile lack, encrypted.
	Sealed []byte `json:"sealed,omitempty"`
	// Boxed reports that it has been loaded in a sandbox.
	Boxed bool `json:"boxed,omitempty"`
}

// The paths of a profile's secrets in errors.
const (
	ProfileMember = "runtime_profile"
	profileToken  = ProfileMember + ".github_token"
	profileEnv    = ProfileMember + ".env"
)

// Restore restores the sessions of the directory. Damaged ones are set aside. A session whose journal
// cannot be opened stays in the directory: ResumeSession tries again.
func (st *Store) Restore() error {
	if st.cfg.Directory == nil {
		return nil
	}
	states, err := st.cfg.Directory.Sessions()
	if err != nil {
		return err
	}
	for key, text := range states {
		e, err := st.restore(key, text)
		if fault.ReasonOf(err) == fault.SessionUnavailable {
			continue
		}
		if err != nil {
			if err := st.cfg.Directory.SetAside(key, err.Error()); err != nil {
				st.log.Error("setting a damaged session aside failed", "session_id", key, "error", err)
			}
			continue
		}
		st.table.Put(e)
		if e.Session.Loader().State() == session.Disconnected {
			st.TrackDisconnected(e)
		}
	}
	st.saver.SaveDirty() // so that the end of a turn has the same place after each restart
	return nil
}

// Load restores one session of the directory, as Restore does at the start. It returns nil if the directory has no such
// session, and loaded is false if the session is in memory already. It calls before for a session that is stored, when
// no caller can find it yet. The error is that of the directory or of before, or says why the session cannot be
// restored.
func (st *Store) Load(
	ctx context.Context, key string, before func() error,
) (e *Entry, loaded bool, err error) {
	if st.cfg.Directory == nil {
		return st.Get(key), false, nil
	}
	e, loaded, err = st.table.GetOrCreate(ctx, key, st.Remove, func() (*Entry, error) {
		state, err := st.cfg.Directory.Session(key)
		if err == nil && state == nil {
			err = errNotStored
		}
		if err == nil {
			err = before()
		}
		if err != nil {
			return nil, err
		}
		return st.restore(key, state)
	})
	if errors.Is(err, errNotStored) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if loaded {
		st.MarkDirty(e)
		if e.Session.Loader().State() == session.Disconnected {
			st.TrackDisconnected(e)
		}
	}
	return e, loaded, nil
}

// errNotStored reports a session that the directory does not have.
var errNotStored = errors.New("the session is not stored")

// restore makes a session of its saved form.
func (st *Store) restore(key string, text json.RawMessage) (*Entry, error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	id := strings.TrimPrefix(key, session.Key(r.Tenant, ""))
	if key != session.Key(r.Tenant, id) || tenancy.CheckID(id, "id") != nil {
		return nil, fmt.Errorf("its state names the tenant %q", r.Tenant)
	}
	if err := session.CheckSaved(r.Session); err != nil {
		return nil, err
	}
	e, err := st.create(r.Tenant, id)
	if err != nil {
		return nil, err
	}
	s := e.Session
	secret := st.unseal(key, &r)
	err = s.Restore(r.Session, secret.Session, st.cfg.Defaults, st.cfg.Providers(r.Tenant))
	if err != nil {
		return nil, err
	}
	for _, path := range r.Lacks {
		s.Settings().Lack(path)
	}
	if r.Boxed {
		e.Sandboxed.Store(true)
	}
	if r.Profile != nil {
		p := withSecrets(*r.Profile, st.cfg.Tenants.ProfileOf(r.Profile.Tenant))
		secret.addTo(&p)
		st.cfg.SetProfile(e, p)
	}
	if offers := e.Shares.Restore(r.SharedWith, r.Shares); offers > 0 {
		st.log.Warn("shares of an older version are offers until the other tenants accept them",
			"session_id", id, "tenant", tenancy.PublicTenant(r.Tenant), "offers", offers)
	}
	return e, nil
}

// reopen returns the session that the directory has of an id, else a new one.
func (st *Store) reopen(tenant, id string) (e *Entry, fresh bool, err error) {
	if d := st.cfg.Directory; d != nil {
		key := session.Key(tenant, id)
		if err := d.TakeUp(key); err != nil {
			st.log.Error("restoring a damaged session failed", "session_id", key, "error", err)
		}
		state, err := d.Session(key)
		if err == nil && state != nil {
			e, err = st.restore(key, state)
			if err == nil || fault.ReasonOf(err) == fault.SessionUnavailable {
				return e, false, err
			}
		}
		if err != nil {
			st.log.Error("restoring a session failed", "session_id", key, "error", err)
		}
	}
	e, err = st.create(tenant, id)
	return e, true, err
}

// withSecrets returns a saved profile with the secrets of the tenant's own.
func withSecrets(p, own runtime.Profile) runtime.Profile {
	p.Token = own.Token
	p.Env = maps.Clone(own.Env)
	return p
}

// withoutSecrets returns what is saved of a profile: nothing of the tenant's own. lacks are the
// paths of the secrets that are left out.
func withoutSecrets(p, own runtime.Profile) (out *runtime.Profile, lacks []string) {
	if p.Hash() == own.Hash() {
		return nil, nil
	}
	if p.Token != own.Token {
		lacks = append(lacks, profileToken)
	}
	if !maps.Equal(p.Env, own.Env) {
		lacks = append(lacks, profileEnv)
	}
	p.Token, p.Env, p.Shard = "", nil, 0
	return &p, lacks
}

// Folder returns the CLI's folder of a session, by its saved state and the default profile of its tenant's runtimes; ""
// if it is not known.
func Folder(key string, state json.RawMessage, own func(tenant string) runtime.Profile) string {
	var r record
	if json.Unmarshal(state, &r) != nil {
		return ""
	}
	profile := own(r.Tenant)
	if r.Profile != nil {
		profile = *r.Profile
	}
	id, found := strings.CutPrefix(key, session.Key(r.Tenant, ""))
	home := profile.StateDir()
	if !found || tenancy.CheckID(id, "id") != nil || home == "" {
		return ""
	}
	return filepath.Join(home, "session-state", id)
}
