package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
)

// Directory stores what outlives the bridge: its sessions, their state and their journals. Package
// store implements it with a data directory of this machine. Package backend has the interfaces of
// its parts.
type Directory interface {
	// NextEpoch returns an epoch later than all before.
	NextEpoch() (uint64, error)
	// Journal opens a session's journal, or begins one with the epoch. journal.OpenLog makes one of
	// any backend.Logs.
	Journal(id string, epoch uint64) (*journal.Disk, journal.Recovery, error)
	// Sessions returns what was saved of each session, by id.
	Sessions() (map[string]json.RawMessage, error)
	// Session returns what was saved of one session, nil if nothing was.
	Session(id string) (json.RawMessage, error)
	// Save keeps what is known of a session, Remove forgets it, also what was set aside of it.
	Save(id string, state []byte) error
	Remove(id string) error
	// SetAside keeps the data of a session that cannot be restored where they are told of as
	// damaged, and TakeUp puts what is left of them back for a session that is resumed.
	SetAside(id, reason string) error
	TakeUp(id string) error
	Damaged() []backend.Damage
	DamageOf(id string) (backend.Damage, bool)
	// Outbox is where a session's prompts are until their turns have ended.
	Outbox(id string) backend.Files
	// Requests returns the log of requests that may come again, and what it holds.
	Requests() (backend.Requests, []backend.Request, error)
}

// closeJournals bounds writing what is not written yet when the bridge ends.
const closeJournals = 10 * time.Second

// kept is what is kept of a session.
type kept struct {
	// Tenant is whose it is; empty for the host's owner.
	Tenant string `json:"tenant,omitempty"`
	// SharedWith are the tenants that it is shared with or offered to.
	SharedWith map[string]share.Kept `json:"shared_with,omitempty"`
	// Shares is how versions before the consent of the other tenant kept that: the class of calls
	// by tenant. It is read, never written, so that such a version shares nothing with a tenant
	// that has not accepted.
	Shares  map[string]string `json:"shares,omitempty"`
	Session json.RawMessage   `json:"session"`
	// Profile is its runtime's, if that is not the bridge's own. Its secrets are left out.
	Profile *runtime.Profile `json:"profile,omitempty"`
	Lacks   []string         `json:"lacks,omitempty"`
	// Boxed says that it has been loaded in a sandbox.
	Boxed bool `json:"boxed,omitempty"`
}

// The paths of a profile's secrets, as they are told.
const (
	profileMember = "runtime_profile"
	profileToken  = profileMember + ".github_token"
	profileEnv    = profileMember + ".env"
)

// newSession makes a session with its journal.
func (b *Bridge) newSession(tenant, id string) *registry.Entry {
	key := session.Key(tenant, id)
	var disk *journal.Disk
	epoch, err := b.epochs.Next()
	if d := b.cfg.Directory; d != nil {
		var found journal.Recovery
		if err == nil {
			disk, found, err = d.Journal(key, epoch)
		}
		switch {
		case err != nil:
			b.log.Error("the session's journal is in memory only", "session_id", id, "error", err)
		case found.Lost:
			b.log.Warn("events of the session may be lost", "session_id", id, "kept", found.Events,
				"bytes_damaged", found.Skipped, "bytes_cut", found.Cut, "set_aside", found.SetAside)
		}
	}
	tuned := b.tuned.Load()
	box := b.outboxOf(key)
	e := registry.NewEntry(b.tenants.ProfileOf(tenant))
	e.Session = session.New(session.Config{
		ID: id, Tenant: tenant, Host: host{b, e}, Encode: b.codec.Event, Epoch: epoch,
		MaxEphemeralBytes: b.cfg.MaxEphemeralBytes, CallbackTimeout: tuned.CallbackTimeout, Bounds: tuned.Turns,
		Log: disk, Budget: b.budget, Room: b.admission.Room(tenant), Observer: b.cfg.Observer, Audit: b.cfg.Audit, Shared: b.cfg.Sole,
		Outbox: box,
	})
	return e
}

// outboxOf opens a session's outbox.
func (b *Bridge) outboxOf(key string) *outbox.Box {
	var disk outbox.Disk
	if d := b.cfg.Directory; d != nil {
		disk = d.Outbox(key)
	}
	box, err := outbox.Open(disk)
	if err != nil {
		b.log.Error("prompts of the session may be lost, whose turns had not ended", "session_id", key, "error", err)
	}
	return box
}

// restore takes up the sessions of the bridge's last life.
func (b *Bridge) restore() error {
	if b.cfg.Directory == nil {
		return nil
	}
	states, err := b.cfg.Directory.Sessions()
	if err != nil {
		return err
	}
	for key, text := range states {
		e, err := b.restoreOne(key, text)
		if err != nil {
			if err := b.cfg.Directory.SetAside(key, err.Error()); err != nil {
				b.log.Error("damaged session left where it is", "session_id", key, "error", err)
			}
			continue
		}
		b.sessions.Put(e)
		if e.Session.State() == session.Disconnected {
			b.retire(e)
		}
	}
	b.saver.SaveDirty() // where the end of turns was told is the same in every life
	return nil
}

// restored gives a kept profile the secrets that the bridge itself has.
func (b *Bridge) restored(p runtime.Profile) runtime.Profile {
	own := b.tenants.ProfileOf(p.Tenant)
	p.Token = own.Token
	p.Env = maps.Clone(own.Env)
	return p
}

// keepable is the profile without its secrets, and which those are.
func (b *Bridge) keepable(p runtime.Profile) (out *runtime.Profile, lacks []string) {
	own := b.tenants.ProfileOf(p.Tenant)
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

// awake loads the sessions whose callbacks waited when the bridge ended.
func (b *Bridge) awake() {
	var awaited []*session.Session
	for _, s := range sessionsOf(b.all()) {
		if s.Awaited() {
			awaited = append(awaited, s)
		}
	}
	b.fleet.Revive(awaited)
}

// save writes what is known of a session; only the saver calls it.
func (b *Bridge) save(e *registry.Entry) {
	d := b.cfg.Directory
	if d == nil {
		return
	}
	s := e.Session
	current := b.sessions.Holds(e)
	state := s.Save(b.defaults, b.tuned.Load().providers)
	if !current || state == nil {
		return
	}
	k := kept{Tenant: s.Tenant(), Session: state, SharedWith: e.Shares.Keep(), Boxed: e.Sandboxed()}
	profile, _ := e.Profile()
	k.Profile, k.Lacks = b.keepable(profile)
	text, err := json.Marshal(k)
	if err == nil {
		err = d.Save(s.Key(), text)
	}
	if err != nil {
		b.log.Error("session not kept for a restart", "session_id", s.ID(), "error", err)
	}
}

// drop forgets a session on disk: one that was deleted, or could not be opened. What such a
// one found there of an earlier life stays, set aside.
func (b *Bridge) drop(s *session.Session) {
	s.Prompts().Box().Close()
	b.saver.Exclusively(func() { b.removeState(s) })
}

// removeState removes the journal of a session and what is saved of it, or sets them aside.
func (b *Bridge) removeState(s *session.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), closeJournals)
	defer cancel()
	if s.State() == session.Creating && s.Journal().Inherited() {
		b.setAside(ctx, s)
		return
	}
	err := s.Journal().Remove(ctx)
	if d := b.cfg.Directory; d != nil && err == nil {
		err = d.Remove(s.Key())
	}
	if err != nil {
		b.log.Error("session not removed from disk", "session_id", s.ID(), "error", err)
	}
}

// restoreOperations takes up the operations of the bridge's previous run.
func (b *Bridge) restoreOperations() error {
	if b.cfg.Directory == nil {
		return nil
	}
	log, requests, err := b.cfg.Directory.Requests()
	if err == nil {
		b.operations.Restore(log, requests)
	}
	return err
}

// closeStore keeps everything as it is when the bridge ends.
func (b *Bridge) closeStore() {
	if b.cfg.Directory == nil {
		return
	}
	b.saver.SaveDirty()
	ctx, cancel := context.WithTimeout(context.Background(), closeJournals)
	defer cancel()
	for _, s := range sessionsOf(b.sessions.All()) {
		if err := s.Journal().Close(ctx); err != nil {
			b.log.Error("journal not closed", "session_id", s.Key(), "error", err)
		}
		s.Prompts().Close()
	}
	if err := b.operations.Close(); err != nil {
		b.log.Error("remembered requests not closed", "error", err)
	}
}
