package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// getOrCreate returns the session of that id, or else puts one in place: what the directory has of
// a session that was disconnected long ago, or a new one.
func (b *Bridge) getOrCreate(ctx context.Context, id string) (s *session.Session, fresh bool) {
	tenant := caller.From(ctx).Tenant
	return b.sessions.GetOrCreate(session.Key(tenant, id), b.forget, func() (*session.Session, bool) {
		return b.reopened(tenant, id)
	})
}

// reopened makes a session with what the directory keeps of it.
func (b *Bridge) reopened(tenant, id string) (s *session.Session, fresh bool) {
	if d := b.cfg.Directory; d != nil {
		key := session.Key(tenant, id)
		if err := d.TakeUp(key); err != nil {
			b.log.Error("damaged session not taken up", "session_id", key, "error", err)
		}
		state, err := d.Session(key)
		if err == nil && state != nil {
			if s, err = b.restoreOne(key, state); err == nil {
				return s, false
			}
		}
		if err != nil {
			b.log.Error("session not restored", "session_id", key, "error", err)
		}
	}
	return b.newSession(tenant, id), true
}

// forget takes a session out that could not be opened, or was deleted.
func (b *Bridge) forget(s *session.Session) {
	finish, ok := b.sessions.BeginRemove(s)
	if !ok {
		return
	}
	defer b.removed(s, finish)
	b.table.Forget(s.Key())
	b.drop(s)
}

// removed ends the removal of a session.
func (b *Bridge) removed(s *session.Session, finish func(remove bool)) {
	b.shells.Forget(s.Key())
	finish(true)
}

// retire notes that a session was disconnected, and evicts those that were long ago.
func (b *Bridge) retire(s *session.Session) {
	for _, oldest := range b.sessions.TrackDisconnected(s) {
		b.Go(func(context.Context) { b.evict(oldest) })
	}
}

// evict takes a disconnected session out of memory. What the directory keeps of it stays.
func (b *Bridge) evict(s *session.Session) {
	if b.cfg.Directory == nil {
		b.forget(s)
		return
	}
	b.saver.Save(s)
	finish, ok := b.sessions.BeginRemove(s)
	if !ok {
		return
	}
	if !s.Park() {
		finish(false) // it has just been resumed
		return
	}
	defer b.removed(s, finish)
	s.ClosePrompts()
	ctx, cancel := context.WithTimeout(context.Background(), closeJournals)
	defer cancel()
	if err := s.Journal().Close(ctx); err != nil {
		b.log.Error("journal not closed", "session_id", s.ID(), "error", err)
	}
}

// restoreOne makes a session of what is kept of it.
func (b *Bridge) restoreOne(key string, text json.RawMessage) (*session.Session, error) {
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
	s := b.newSession(k.Tenant, id)
	if err := s.Restore(k.Session, b.defaults, b.providersOf(k.Tenant)); err != nil {
		return nil, err
	}
	for _, path := range k.Lacks {
		s.Lack(path)
	}
	placeOf(s).boxed(k.Boxed)
	if k.Profile != nil {
		p := b.restored(*k.Profile)
		placeOf(s).set(p)
		s.Need(needs(p)...)
	}
	if offers := placeOf(s).shares.Restore(k.SharedWith, k.Shares); offers > 0 {
		b.log.Warn("shares of an older version are offers until the other tenants accept them",
			"session_id", id, "tenant", share.PublicTenant(k.Tenant), "offers", offers)
	}
	return s, nil
}
