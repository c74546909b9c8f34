package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// getOrCreate returns the session of that id, or else puts one in place: what the directory has of
// a session that was disconnected long ago, or a new one.
func (b *Bridge) getOrCreate(ctx context.Context, id string) (e *registry.Entry, fresh bool) {
	tenant := caller.From(ctx).Tenant
	return b.sessions.GetOrCreate(session.Key(tenant, id), b.forget, func() (*registry.Entry, bool) {
		return b.reopened(tenant, id)
	})
}

// reopened makes a session with what the directory keeps of it.
func (b *Bridge) reopened(tenant, id string) (e *registry.Entry, fresh bool) {
	if d := b.cfg.Directory; d != nil {
		key := session.Key(tenant, id)
		if err := d.TakeUp(key); err != nil {
			b.log.Error("damaged session not taken up", "session_id", key, "error", err)
		}
		state, err := d.Session(key)
		if err == nil && state != nil {
			if e, err = b.restoreOne(key, state); err == nil {
				return e, false
			}
		}
		if err != nil {
			b.log.Error("session not restored", "session_id", key, "error", err)
		}
	}
	return b.newSession(tenant, id), true
}

// forget takes a session out that could not be opened, or was deleted.
func (b *Bridge) forget(e *registry.Entry) {
	finish, ok := b.sessions.BeginRemove(e)
	if !ok {
		return
	}
	defer b.removed(e, finish)
	b.fleet.Forget(e.Key())
	b.drop(e.Session)
}

// removed ends the removal of a session.
func (b *Bridge) removed(e *registry.Entry, finish func(remove bool)) {
	b.shells.Forget(e.Key())
	finish(true)
}

// retire notes that a session was disconnected, and evicts those that were long ago.
func (b *Bridge) retire(e *registry.Entry) {
	for _, oldest := range b.sessions.TrackDisconnected(e) {
		b.Go(func(context.Context) { b.evict(oldest) })
	}
}

// evict takes a disconnected session out of memory. What the directory keeps of it stays.
func (b *Bridge) evict(e *registry.Entry) {
	if b.cfg.Directory == nil {
		b.forget(e)
		return
	}
	b.saver.Save(e)
	finish, ok := b.sessions.BeginRemove(e)
	if !ok {
		return
	}
	s := e.Session
	if !s.Park() {
		finish(false) // it has just been resumed
		return
	}
	defer b.removed(e, finish)
	s.Prompts().Box().Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeJournals)
	defer cancel()
	if err := s.Journal().Close(ctx); err != nil {
		b.log.Error("journal not closed", "session_id", s.ID(), "error", err)
	}
}

// restoreOne makes a session of what is kept of it.
func (b *Bridge) restoreOne(key string, text json.RawMessage) (*registry.Entry, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, err
	}
	id := strings.TrimPrefix(key, session.Key(k.Tenant, ""))
	if key != session.Key(k.Tenant, id) || tenancy.CheckID(id, "id") != nil {
		return nil, fmt.Errorf("it says that its tenant is %q", k.Tenant)
	}
	if err := session.CheckSaved(k.Session); err != nil {
		return nil, err
	}
	e := b.newSession(k.Tenant, id)
	s := e.Session
	if err := s.Restore(k.Session, b.defaults, b.providersOf(k.Tenant)); err != nil {
		return nil, err
	}
	for _, path := range k.Lacks {
		s.Lack(path)
	}
	if k.Boxed {
		e.SetSandboxed()
	}
	if k.Profile != nil {
		b.fleet.SetProfile(e, b.restored(*k.Profile))
	}
	if offers := e.Shares.Restore(k.SharedWith, k.Shares); offers > 0 {
		b.log.Warn("shares of an older version are offers until the other tenants accept them",
			"session_id", id, "tenant", share.PublicTenant(k.Tenant), "offers", offers)
	}
	return e, nil
}
