// Package idempotency answers a request that comes twice with the first one's answer.
package idempotency

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// The limits.
const (
	// Keep is how long an answer is remembered.
	Keep = 24 * time.Hour
	// MaxKeys bounds the answers remembered; past it the oldest is forgotten.
	MaxKeys = 100_000
	// MaxIDLength is the longest request id.
	MaxIDLength = 128
)

// Store remembers answers by request id. The zero value is not usable; call New.
type Store struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[string]*entry
	order   []*entry
}

type entry struct {
	key     string
	request [sha256.Size]byte
	expires time.Time
	done    chan struct{}
	answer  proto.Message
	err     error
}

// New returns an empty store. now is the clock.
func New(now func() time.Time) *Store {
	return &Store{now: now, entries: map[string]*entry{}}
}

// Do returns f's answer to the request, or, when a request with the same scope and id was
// made before, that one's answer: also when it is still under way. Failures are not
// remembered: the next request tries again. An empty id always calls f. The answer is
// shared and must not be changed.
func (s *Store) Do(ctx context.Context, scope, id string, request proto.Message, f func() (proto.Message, error)) (proto.Message, error) {
	if id == "" {
		return f()
	}
	if len(id) > MaxIDLength {
		return nil, fault.New(fault.InvalidField, "longer than %d characters", MaxIDLength).WithField("request_id")
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "encoding a request")
	}
	for {
		e, mine := s.enter(scope+"\x00"+id, sha256.Sum256(encoded))
		if mine {
			return s.run(e, f)
		}
		if e == nil {
			return nil, fault.New(fault.RequestIDReused, "request id %q came with a different request", id).WithField("request_id")
		}
		select {
		case <-e.done:
			if e.err == nil {
				return e.answer, nil
			}
		case <-ctx.Done():
			return nil, fault.Wrap(ctx.Err(), fault.Cancelled, "waiting for the same request")
		}
	}
}

// enter finds the entry of a key, or makes one that is the caller's to complete. It
// returns nil when the key was used for another request.
func (s *Store) enter(key string, request [sha256.Size]byte) (e *entry, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if e := s.entries[key]; e != nil {
		if e.request != request {
			return nil, false
		}
		return e, false
	}
	e = &entry{key: key, request: request, expires: s.now().Add(Keep), done: make(chan struct{})}
	s.entries[key] = e
	s.order = append(s.order, e)
	return e, true
}

// run completes an entry. A panic in f completes it too, as a failure.
func (s *Store) run(e *entry, f func() (proto.Message, error)) (proto.Message, error) {
	e.err = fault.New(fault.Internal, "the request panicked")
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if e.err != nil && s.entries[e.key] == e {
			delete(s.entries, e.key)
		}
		close(e.done)
	}()
	e.answer, e.err = f()
	return e.answer, e.err
}

// expire forgets what is too old or too much. The caller holds mu.
func (s *Store) expire() {
	now := s.now()
	for len(s.order) > 0 && (s.order[0].expires.Before(now) || len(s.order) > MaxKeys) {
		if e := s.order[0]; s.entries[e.key] == e {
			delete(s.entries, e.key)
		}
		s.order = s.order[1:]
	}
}
