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
	// MaxKeys bounds the answers remembered, MaxBytes what they take on the wire with
	// overheadBytes for each; past either the oldest answer is forgotten.
	MaxKeys  = 100_000
	MaxBytes = 32 << 20
	// overheadBytes is about what remembering an empty answer takes.
	overheadBytes = 512
	// MaxIDLength is the longest request id.
	MaxIDLength = 128
)

// Store remembers answers by request id. The zero value is not usable; call New.
type Store struct {
	now func() time.Time
	log Log // may be nil

	mu      sync.Mutex
	entries map[string]*entry
	order   []*entry
	bytes   int // of those in order
}

type entry struct {
	key     string
	request [sha256.Size]byte
	expires time.Time
	done    chan struct{}
	answer  proto.Message
	size    int // what it counts for; 0 while it is not there
	err     error
	// doubt: an earlier life of the process began it, when since was true.
	doubt, settling bool
	since           []byte
}

// Log keeps requests for the next life of the process.
type Log interface {
	// Begun notes that a request begins; since is what is true then.
	Begun(key string, request []byte, expires time.Time, since []byte) error
	// Ended notes how it ended: with an answer, or with nil for a failure.
	Ended(key string, request []byte, expires time.Time, answer proto.Message) error
	// Close ends the log.
	Close() error
}

// Doubt says how a request is settled of which nobody knows what became of it.
type Doubt struct {
	// Since returns what settling needs to know of the time before the request.
	Since func() []byte
	// Settle finds out; it fails where that cannot be found.
	Settle func(since []byte) (proto.Message, error)
	// Open tells of a failure whether it leaves that to be found out; nil is never.
	Open func(error) bool
}

// New returns an empty store. now is the clock.
func New(now func() time.Time) *Store {
	return &Store{now: now, entries: map[string]*entry{}}
}

// Keep has the store use a log.
func (s *Store) Keep(log Log) { s.log = log }

// Close ends the log.
func (s *Store) Close() error {
	if s.log == nil {
		return nil
	}
	return s.log.Close()
}

// Remember takes up a request of an earlier life; a nil answer is one in doubt.
func (s *Store) Remember(key string, request []byte, expires time.Time, answer proto.Message, since []byte) {
	e := &entry{key: key, expires: expires, done: make(chan struct{}), answer: answer, doubt: answer == nil, since: since}
	copy(e.request[:], request)
	close(e.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[key] = e
	s.order = append(s.order, e)
	s.answered(e)
}

// answered counts an answer, and forgets older ones if they are too much. The caller holds mu.
func (s *Store) answered(e *entry) {
	if s.entries[e.key] != e || e.answer == nil {
		return
	}
	e.size = proto.Size(e.answer) + overheadBytes
	s.bytes += e.size
	s.expire()
}

// Do returns f's answer to the request, or, when a request with the same scope and id was
// made before, that one's answer: also when it is still under way. Failures are not
// remembered: the next request tries again. An empty id always calls f. The answer is
// shared and must not be changed.
func (s *Store) Do(ctx context.Context, scope, id string, request proto.Message, f func() (proto.Message, error)) (proto.Message, error) {
	return s.DoOrSettle(ctx, scope, id, request, Doubt{}, f)
}

// DoOrSettle is Do for requests whose failure in the middle can be settled after the
// fact: d does that for one that an earlier life of the process began and did not end.
// Without d such a request is made again.
func (s *Store) DoOrSettle(ctx context.Context, scope, id string, request proto.Message, d Doubt, f func() (proto.Message, error)) (proto.Message, error) {
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
			if e.doubt && d.Settle != nil {
				return s.run(e, Doubt{}, func() (proto.Message, error) { return d.Settle(e.since) })
			}
			return s.run(e, d, f)
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
		if !e.doubt || e.settling {
			return e, false
		}
	}
	doubt := s.entries[key]
	e = &entry{key: key, request: request, expires: s.now().Add(Keep), done: make(chan struct{})}
	if doubt != nil {
		e.doubt, e.settling, e.since = true, true, doubt.since
	}
	s.entries[key] = e
	s.order = append(s.order, e)
	return e, true
}

// run completes an entry. A panic in f completes it too, as a failure.
func (s *Store) run(e *entry, d Doubt, f func() (proto.Message, error)) (proto.Message, error) {
	if d.Since != nil {
		e.since = d.Since()
		if s.log != nil {
			// Only what is noted can be settled; what cannot be noted is done all the same.
			_ = s.log.Begun(e.key, e.request[:], e.expires, e.since)
		}
	}
	e.err = fault.New(fault.Internal, "the request panicked")
	unsettled := false
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case e.err == nil:
			s.answered(e)
		case s.entries[e.key] != e:
		case unsettled:
			again := &entry{key: e.key, request: e.request, expires: e.expires, done: e.done, doubt: true, since: e.since, err: e.err}
			s.entries[e.key] = again
			s.order = append(s.order, again)
		default:
			delete(s.entries, e.key)
		}
		close(e.done)
	}()
	e.answer, e.err = f()
	unsettled = e.unsettled() || e.err != nil && d.Open != nil && d.Open(e.err)
	switch {
	case s.log == nil || unsettled:
	case e.err == nil:
		_ = s.log.Ended(e.key, e.request[:], e.expires, e.answer) // as above
	case d.Since != nil || e.doubt:
		_ = s.log.Ended(e.key, e.request[:], e.expires, nil) // as above
	}
	return e.answer, e.err
}

// unsettled reports whether what became of the request is as unknown as before.
func (e *entry) unsettled() bool {
	return e.settling && e.err != nil && fault.ReasonOf(e.err) != fault.SendInDoubt
}

// expire forgets what is too old, and the oldest answers when there is too much. A request
// that is under way or in doubt stays: to forget it would be to make it twice. The caller holds
// mu.
func (s *Store) expire() {
	now := s.now()
	for range len(s.order) {
		e := s.order[0]
		old := e.expires.Before(now)
		if !old && len(s.order) <= MaxKeys && s.bytes <= MaxBytes {
			return
		}
		s.order[0], s.order = nil, s.order[1:]
		switch live := s.entries[e.key] == e; {
		case live && e.size == 0 && !old:
			s.order = append(s.order, e)
		case live:
			delete(s.entries, e.key)
		}
		s.bytes -= e.size
	}
}
