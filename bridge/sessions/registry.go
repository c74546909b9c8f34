package sessions

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// MaxDisconnected is how many disconnected sessions stay in the registry. Older ones are evicted.
const MaxDisconnected = 256

// registry is the table of sessions by key, with the list of disconnected ones. A session's journal has one owner at a time:
// while a session is being removed, nothing else gets its key. Make one with newRegistry. It is safe for concurrent use.
//
// A session's lock may be taken while mu is held. The functions given to GetOrCreate run without mu.
type registry struct {
	mu       sync.Mutex
	sessions map[string]*Entry
	busy     map[string]chan struct{} // keys being created or removed; each closes when that is over
	oldest   []*Entry                 // disconnected ones, oldest first
}

// newRegistry returns an empty registry.
func newRegistry() *registry {
	return &registry{sessions: map[string]*Entry{}, busy: map[string]chan struct{}{}}
}

// Get returns the session of a key, nil if there is none.
func (r *registry) Get(key string) *Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[key]
}

// Holds reports whether s is the session of its key.
func (r *registry) Holds(s *Entry) bool { return r.Get(s.Key()) == s }

// All returns all sessions, in no order.
func (r *registry) All() []*Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.AppendSeq(make([]*Entry, 0, len(r.sessions)), maps.Values(r.sessions))
}

// Put makes s the session of its key.
func (r *registry) Put(s *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s.Key()] = s
}

// GetOrCreate returns the session of a key, or else the one that create makes. One caller at a time
// creates or removes the session of a key; the others wait until that is over or ctx ends.
// GetOrCreate calls remove for a session that was deleted. made reports whether create has made the
// session. If create fails, the key stays free.
func (r *registry) GetOrCreate(ctx context.Context, key string, remove func(*Entry), create func() (*Entry, error)) (
	s *Entry, made bool, err error,
) {
	for {
		found, busy, put := r.find(key)
		switch {
		case put != nil:
			s, err = fill(create, put)
			return s, err == nil, err
		case busy != nil:
			select {
			case <-busy:
			case <-ctx.Done():
				return nil, false, context.Cause(ctx)
			}
		case found.Session.Loader().State() == session.Deleted:
			remove(found)
		default:
			return found, false, nil
		}
	}
}

// fill puts the session that create makes. After an error or a panic it puts nil, which frees the key.
func fill(create func() (*Entry, error), put func(*Entry)) (s *Entry, err error) {
	defer func() { put(s) }()
	made, err := create()
	if err == nil {
		s = made
	}
	return s, err
}

// find returns the session of a key. Instead it returns busy if another caller creates or removes the session, and put if
// there is none: the key is the caller's until it calls put with the session, or with nil.
func (r *registry) find(key string) (found *Entry, busy <-chan struct{}, put func(*Entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if over := r.busy[key]; over != nil {
		return nil, over, nil
	}
	if s := r.sessions[key]; s != nil {
		return s, nil, nil
	}
	return nil, nil, r.reserve(key)
}

// reserve reserves a key until put is called with its session, or with nil for none. The caller holds mu.
func (r *registry) reserve(key string) (put func(*Entry)) {
	over := make(chan struct{})
	r.busy[key] = over
	return func(s *Entry) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if s != nil {
			r.sessions[key] = s
		} else {
			delete(r.sessions, key)
		}
		delete(r.busy, key)
		close(over)
	}
}

// Reserve keeps a key from being created until release is called; ok is false if the registry has a session of that
// key, or one is being created or removed.
func (r *registry) Reserve(key string) (release func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.sessions[key]; taken || r.busy[key] != nil {
		return nil, false
	}
	put := r.reserve(key)
	return func() { put(nil) }, true
}

// BeginRemove starts the removal of a session; ok is false if the session is not in the registry
// or is being removed already. The caller calls finish once the session's journal is closed; with
// false the session stays.
func (r *registry) BeginRemove(s *Entry) (finish func(remove bool), ok bool) {
	key := s.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[key] != s || r.busy[key] != nil {
		return nil, false
	}
	put := r.reserve(key)
	return func(remove bool) {
		if remove {
			put(nil)
		} else {
			put(s)
		}
	}, true
}

// Drop takes a session out whose removal has begun. Its key stays reserved until the removal is finished.
func (r *registry) Drop(s *Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[s.Key()] == s {
		delete(r.sessions, s.Key())
	}
}

// TrackDisconnected notes that a session was disconnected. It returns the sessions that are
// beyond MaxDisconnected, which the caller evicts.
func (r *registry) TrackDisconnected(s *Entry) (evict []*Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.oldest = slices.DeleteFunc(r.oldest, func(o *Entry) bool {
		return o == s || o.Session.Loader().State() != session.Disconnected
	})
	r.oldest = append(r.oldest, s)
	if n := len(r.oldest) - MaxDisconnected; n > 0 {
		evict = slices.Clone(r.oldest[:n])
		r.oldest = slices.Delete(r.oldest, 0, n)
	}
	return evict
}
