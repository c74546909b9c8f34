package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
)

// A session's journal has one owner at a time. Who enters a session waits until the one
// that had its id before has given its journal back.

// enter puts a new session of that id in place, unless the caller's tenant has one, or the
// directory knows one that was disconnected long ago.
func (b *Bridge) enter(ctx context.Context, id string) (s *session.Session, fresh bool) {
	tenant := caller.From(ctx).Tenant
	key := session.Key(tenant, id)
	for {
		b.mu.Lock()
		s, left := b.sessions[key], b.leaving[key]
		switch {
		case left != nil:
			b.mu.Unlock()
			<-left
		case s == nil:
			s, fresh := b.reopened(tenant, id)
			b.sessions[key] = s
			b.mu.Unlock()
			return s, fresh
		case s.State() != session.Deleted:
			b.mu.Unlock()
			return s, false
		default:
			b.mu.Unlock()
			b.forget(s)
		}
	}
}

// reopened makes a session with what the directory keeps of it. The caller holds mu.
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

// leave marks a session as leaving, if it is the one of its id. gone must be called after: with
// false it stays.
func (b *Bridge) leave(s *session.Session) (gone func(bool), ok bool) {
	key := s.Key()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[key] != s || b.leaving[key] != nil {
		return nil, false
	}
	left := make(chan struct{})
	b.leaving[key] = left
	return func(indeed bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if indeed {
			delete(b.sessions, key)
			b.shellStarts.Delete(key)
		}
		delete(b.leaving, key)
		close(left)
	}, true
}

// forget takes a session out that could not be opened, or was deleted.
func (b *Bridge) forget(s *session.Session) {
	gone, ok := b.leave(s)
	if !ok {
		return
	}
	defer gone(true)
	b.table.Forget(s.Key())
	b.drop(s)
}

// maxEnded bounds the disconnected sessions that are in memory. Of the others there is
// what the directory keeps, from which a resume takes them up again.
const maxEnded = 256

// retire notes that a session was disconnected.
func (b *Bridge) retire(s *session.Session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = slices.DeleteFunc(b.ended, func(o *session.Session) bool { return o == s || o.State() != session.Disconnected })
	b.ended = append(b.ended, s)
	for len(b.ended) > maxEnded {
		oldest := b.ended[0]
		b.ended = b.ended[1:]
		b.Go(func(context.Context) { b.park(oldest) })
	}
}

// park takes a disconnected session out of memory. What the directory keeps of it stays.
func (b *Bridge) park(s *session.Session) {
	if b.cfg.Directory == nil {
		b.forget(s)
		return
	}
	b.keep(s)
	gone, ok := b.leave(s)
	if !ok {
		return
	}
	parked := s.Park()
	defer func() { gone(parked) }()
	if !parked {
		return // somebody has just resumed it
	}
	s.ClosePrompts()
	ctx, cancel := context.WithTimeout(context.Background(), closeJournals)
	defer cancel()
	if err := s.Journal().Close(ctx); err != nil {
		b.log.Error("journal not closed", "session_id", s.ID(), "error", err)
	}
}

// restoreOne makes a session of what is kept of it. The caller holds mu.
func (b *Bridge) restoreOne(key string, text json.RawMessage) (*session.Session, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, err
	}
	id := strings.TrimPrefix(key, session.Key(k.Tenant, ""))
	if key != session.Key(k.Tenant, id) || checkID(id, "id") != nil {
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
