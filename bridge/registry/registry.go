// Package registry holds the sessions of a bridge by key. A session's journal has one owner at a
// time: while a session is being removed, nothing else gets its key.
//
// A Registry owns the table and the list of disconnected sessions. One mutex guards both; the
// functions given to New and to GetOrCreate run while it is held, and may lock an entry, a session
// or Epochs, never the registry. An Entry's mutex guards the session's profile; nothing else is
// locked while it is held. The package starts no goroutine.
package registry

import (
	"slices"
	"sync"
)

// MaxDisconnected is how many disconnected sessions stay in the registry. Older ones are evicted.
const MaxDisconnected = 256

// Session is what a registry holds.
type Session interface {
	comparable
	Key() string
}

// Registry is a table of sessions. Call New to make one. It is safe for concurrent use.
type Registry[S Session] struct {
	deleted, disconnected func(S) bool

	mu       sync.Mutex
	sessions map[string]S
	removing map[string]chan struct{} // each closes when the removal is over
	oldest   []S                      // disconnected ones, oldest first
}

// New returns an empty registry. deleted and disconnected report the state of a session.
func New[S Session](deleted, disconnected func(S) bool) *Registry[S] {
	return &Registry[S]{
		deleted: deleted, disconnected: disconnected,
		sessions: map[string]S{}, removing: map[string]chan struct{}{},
	}
}

// Get returns the session of a key, the zero value if there is none.
func (r *Registry[S]) Get(key string) S {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[key]
}

// Holds reports whether s is the session of its key.
func (r *Registry[S]) Holds(s S) bool { return r.Get(s.Key()) == s }

// All returns all sessions, in no order.
func (r *Registry[S]) All() []S {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]S, 0, len(r.sessions))
	for _, s := range r.sessions {
		out = append(out, s)
	}
	return out
}

// Put makes s the session of its key.
func (r *Registry[S]) Put(s S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s.Key()] = s
}

// GetOrCreate returns the session of a key, or else the one that create makes. It waits for a
// removal that is under way, and calls remove for a session that was deleted. fresh is what
// create returned, false for a session that was there.
func (r *Registry[S]) GetOrCreate(key string, remove func(S), create func() (s S, fresh bool)) (s S, fresh bool) {
	var none S
	for {
		s, fresh, deleted, removed := r.getOrCreate(key, create)
		switch {
		case removed != nil:
			<-removed
		case deleted != none:
			remove(deleted)
		default:
			return s, fresh
		}
	}
}

func (r *Registry[S]) getOrCreate(key string, create func() (S, bool)) (s S, fresh bool, deleted S, removed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if removed := r.removing[key]; removed != nil {
		return s, false, deleted, removed
	}
	found, ok := r.sessions[key]
	if !ok {
		found, fresh = create()
		r.sessions[key] = found
		return found, fresh, deleted, nil
	}
	if r.deleted(found) {
		return s, false, found, nil
	}
	return found, false, deleted, nil
}

// BeginRemove starts the removal of a session; ok is false if the session is not in the registry
// or is being removed already. The caller calls finish once the session's journal is closed; with
// false the session stays.
func (r *Registry[S]) BeginRemove(s S) (finish func(remove bool), ok bool) {
	key := s.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[key] != s || r.removing[key] != nil {
		return nil, false
	}
	over := make(chan struct{})
	r.removing[key] = over
	return func(remove bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if remove {
			delete(r.sessions, key)
		}
		delete(r.removing, key)
		close(over)
	}, true
}

// TrackDisconnected notes that a session was disconnected. It returns the sessions that are
// beyond MaxDisconnected, which the caller evicts.
func (r *Registry[S]) TrackDisconnected(s S) (evict []S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oldest = slices.DeleteFunc(r.oldest, func(o S) bool { return o == s || !r.disconnected(o) })
	r.oldest = append(r.oldest, s)
	if n := len(r.oldest) - MaxDisconnected; n > 0 {
		evict = slices.Clone(r.oldest[:n])
		r.oldest = slices.Delete(r.oldest, 0, n)
	}
	return evict
}
