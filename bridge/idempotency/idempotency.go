// Package idempotency answers a repeated request with the answer to the first one, so that a client can safely retry.
//
// Store.mu guards all entries. The package starts no goroutines.
package idempotency

import (
	"container/list"
	"context"
	"crypto/sha256"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Limits.
const (
	// Keep is how long an answer is stored.
	Keep = 24 * time.Hour
	// MaxIDLength is the longest request id.
	MaxIDLength = 128
)

// Store stores answers by request id. Use New to create one. It is safe for concurrent use, except Keep and Remember,
// which must be called before the first request.
type Store struct {
	now    func() time.Time
	limits func(tenant string) (own, all Quota)
	log    Log // may be nil

	mu      sync.Mutex
	entries map[backend.Key]*entry
	tenants map[string]*tenant // tenants with entries
	used    usage
}

// tenant has the entries of one tenant.
type tenant struct {
	used  usage
	kinds [kinds]usage
	order list.List // of *entry, by the time of their expiry
}

type entry struct {
	key     backend.Key
	request [sha256.Size]byte
	expires time.Time
	done    chan struct{}
	ended   atomic.Bool // the request has an outcome, which done tells
	answer  proto.Message
	logged  bool  // the answer is in the log, and answer is nil
	size    int64 // counted against the quotas
	err     error
	place   *list.Element
	// old entries come from a version without quotas, and are removed first.
	old bool
	// doubt means that the outcome of the request is unknown; since is the state at its start.
	doubt, settling bool
	since           []byte
}

// Log persists requests for the next process.
type Log interface {
	// Begun records the start of a request. since is the state at that time.
	Begun(key backend.Key, request []byte, expires time.Time, since []byte) error
	// Ended records the end of a request: an answer, or nil for a failure.
	Ended(key backend.Key, request []byte, expires time.Time, answer proto.Message) error
	// Answer reads an answer that Ended recorded.
	Answer(key backend.Key) (proto.Message, error)
	// Forget drops a request that has expired or was removed for a quota. It keeps a newer request with the same key,
	// which expires later.
	Forget(key backend.Key, expires time.Time)
	// Compact compacts the log as far as possible.
	Compact(ctx context.Context) error
	// Close closes the log.
	Close() error
}

// Finder is a Log to which other processes write, too.
type Finder interface {
	// Find returns a request that any process has recorded; false if there is none.
	Find(key backend.Key) (Remembered, bool, error)
}

// Doubt describes how to resolve a request whose outcome is unknown after a crash.
type Doubt struct {
	// Since returns the state before the request that Settle needs.
	Since func() []byte
	// Settle determines the outcome. It returns an error if that is impossible.
	Settle func(since []byte) (proto.Message, error)
	// Open reports whether a failure leaves the outcome unknown. A nil Open never does.
	Open func(error) bool
}

// Remembered is a request of an earlier process.
type Remembered struct {
	Key     backend.Key
	Request []byte // its digest
	Expires time.Time
	// Answer is nil if the log has it (Logged) or if the outcome is unknown.
	Answer proto.Message
	// Logged reports that the log has an answer; Bytes is its size on the wire.
	Logged bool
	Bytes  int64
	Since  []byte
	// Old reports that the request comes from a log without quotas.
	Old bool
}

// New returns an empty store. now is the clock. limits returns the quota of a tenant and that of all tenants
// together; nil means the defaults.
func New(now func() time.Time, limits func(tenant string) (own, all Quota)) *Store {
	if limits == nil {
		limits = func(string) (own, all Quota) {
			return Quota{DefaultRequests, DefaultBytes}, Quota{DefaultTotalRequests, DefaultTotalBytes}
		}
	}
	return &Store{now: now, limits: limits, entries: map[backend.Key]*entry{}, tenants: map[string]*tenant{}}
}

// Keep makes the store use a log.
func (s *Store) Keep(log Log) { s.log = log }

// Close closes the log.
func (s *Store) Close() error {
	if s.log == nil {
		return nil
	}
	return s.log.Close()
}

// Remember adds requests of an earlier process, ordered by expiry. Requests from before there were quotas are removed
// if they exceed them, oldest first; all others stay.
func (s *Store) Remember(requests iter.Seq[Remembered]) {
	done := make(chan struct{})
	close(done)
	s.mu.Lock()
	for r := range requests {
		e := &entry{
			key: r.Key, expires: r.Expires, done: done, answer: r.Answer, logged: r.Logged, since: r.Since, old: r.Old,
		}
		e.doubt = r.Answer == nil && !r.Logged
		copy(e.request[:], r.Request)
		s.put(e)
		if !e.doubt {
			s.resize(e, max(r.Bytes, int64(proto.Size(r.Answer))))
		}
	}
	dropped := s.giveWay()
	s.mu.Unlock()
	s.forget(dropped)
}

// Start answers a request: by do, or with the answer to an earlier request with the same key, for which it waits while
// that is still running. It calls done once, with an answer that is shared and must not be changed. Failures are not
// stored: the next request tries again. If the quota is used up, the request ends with LIMIT_EXCEEDED and the time to
// retry. An empty id always calls do.
//
// d settles a request that an earlier process started and did not end. Without d such a request is carried out again.
//
// Start may block: in the disk's call, and until ctx ends while the same request is running. do must call its own done
// once, on any goroutine, which that may block in the disk's call.
func Start[T proto.Message](
	ctx context.Context, s *Store, k backend.Key, request proto.Message, d Doubt, do func(ctx context.Context, done func(T, error)),
	done func(T, error),
) {
	if k.ID == "" {
		do(ctx, done)
		return
	}
	e, settling, m, err := s.claim(ctx, k, request, d)
	switch {
	case e == nil:
		answer, _ := m.(T)
		done(answer, err)
	case settling:
		settle := func(_ context.Context, done func(T, error)) {
			m, err := d.Settle(e.since)
			answer, _ := m.(T)
			done(answer, err)
		}
		run(ctx, s, e, Doubt{}, settle, done)
	default:
		run(ctx, s, e, d, do, done)
	}
}

// claim returns the entry of a request that the caller must carry out or, if settling is set, settle. If there is
// nothing to do, e is nil, and the request has an answer or an error.
func (s *Store) claim(ctx context.Context, k backend.Key, request proto.Message, d Doubt) (
	e *entry, settling bool, answer proto.Message, err error) {
	if len(k.ID) > MaxIDLength {
		err = fault.New(fault.InvalidField, "longer than %d characters", MaxIDLength).WithField("request_id")
		return nil, false, nil, err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, false, nil, fault.Wrap(err, fault.Internal, "encoding a request")
	}
	if err := s.look(k); err != nil {
		return nil, false, nil, err
	}
	for {
		e, mine, err := s.enter(k, sha256.Sum256(encoded))
		if err != nil {
			return nil, false, nil, err
		}
		if mine {
			return e, e.doubt && d.Settle != nil, nil, nil
		}
		select {
		case <-e.done:
			if e.err == nil {
				answer, err = s.answer(e)
				return nil, false, answer, err
			}
		case <-ctx.Done():
			return nil, false, nil, fault.Wrap(ctx.Err(), fault.Cancelled, "waiting for the same request")
		}
	}
}

// look remembers a request that another process has recorded in the log since this one began.
func (s *Store) look(k backend.Key) error {
	finder, ok := s.log.(Finder)
	if !ok {
		return nil
	}
	s.mu.Lock()
	known := s.entries[k] != nil
	s.mu.Unlock()
	if known {
		return nil
	}
	r, found, err := finder.Find(k)
	if err != nil {
		return fault.Wrap(err, fault.SessionUnavailable, "it is not known whether the request was carried out before").
			WithRetry(time.Second)
	}
	if !found || !r.Expires.After(s.now()) {
		return nil
	}
	s.Remember(func(yield func(Remembered) bool) {
		if s.entries[k] == nil { // Remember holds the lock; the request may have arrived again meanwhile
			yield(r)
		}
	})
	return nil
}

// enter finds the entry of a key, or creates one that the caller must complete. It fails if the key was used for a
// different request or if the quota is used up.
func (s *Store) enter(k backend.Key, request [sha256.Size]byte) (e *entry, mine bool, err error) {
	s.mu.Lock()
	expired := s.expire(k.Tenant)
	defer s.forget(expired)
	defer s.mu.Unlock()
	found := s.entries[k]
	if found != nil {
		if found.request != request {
			err := fault.New(fault.RequestIDReused, "request id %q was used for a different request: choose a new id", k.ID)
			return nil, false, err.WithField("request_id")
		}
		if !found.doubt || found.settling {
			return found, false, nil
		}
	} else if err := s.admit(k); err != nil {
		return nil, false, err
	}
	e = s.add(k, request)
	if found != nil {
		e.doubt, e.settling, e.since = true, true, found.since
		s.resize(e, 0)
	}
	return e, true, nil
}

// answer returns the answer of a request that has ended.
func (s *Store) answer(e *entry) (proto.Message, error) {
	s.mu.Lock()
	answer, logged := e.answer, e.logged
	s.mu.Unlock()
	if answer != nil || !logged {
		return answer, nil
	}
	answer, err := s.log.Answer(e.key)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the request was carried out, but its stored answer cannot be read")
	}
	return answer, nil
}

// run records an entry, carries it out by do, and completes it. If do panics, run completes the entry as a failure.
func run[T proto.Message](
	ctx context.Context, s *Store, e *entry, d Doubt, do func(ctx context.Context, done func(T, error)),
	done func(T, error),
) {
	s.record(e, d)
	returned := false
	defer func() {
		if !returned && e.ended.CompareAndSwap(false, true) { // nothing is recorded: the next process finds out what became of it
			e.err = fault.New(fault.Internal, "the request panicked")
			s.complete(e, false, false)
		}
	}()
	do(ctx, func(answer T, err error) {
		if !e.ended.CompareAndSwap(false, true) {
			return
		}
		if err != nil {
			s.end(e, d, nil, err)
		} else {
			s.end(e, d, answer, nil)
		}
		done(answer, err)
	})
	returned = true
}

// record writes down that a request begins: only a recorded request can be settled later. If that fails, the request is
// carried out nevertheless. record may hang in the disk's call.
func (s *Store) record(e *entry, d Doubt) {
	if d.Since == nil {
		return
	}
	since := d.Since()
	s.mu.Lock()
	e.since = since
	s.resize(e, 0)
	s.mu.Unlock()
	if s.log != nil {
		_ = s.log.Begun(e.key, e.request[:], e.expires, since)
	}
}

// end records the end of a request, and completes it for all that wait for it. It may hang in the disk's call.
func (s *Store) end(e *entry, d Doubt, answer proto.Message, err error) {
	e.answer, e.err = answer, err
	unsettled := e.unsettled() || err != nil && d.Open != nil && d.Open(err)
	logged := false
	switch {
	case s.log == nil || unsettled:
	case err == nil:
		logged = s.log.Ended(e.key, e.request[:], e.expires, answer) == nil
	case d.Since != nil || e.doubt:
		_ = s.log.Ended(e.key, e.request[:], e.expires, nil) // as record
	}
	s.complete(e, unsettled, logged)
}

// unsettled reports whether the outcome of the request is still unknown.
func (e *entry) unsettled() bool {
	return e.settling && e.err != nil && fault.ReasonOf(e.err) != fault.SendUnconfirmed
}

// complete ends the waiting for a request. unsettled says that its outcome is unknown, logged that the log has its
// answer.
func (s *Store) complete(e *entry, unsettled, logged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.err == nil:
		e.doubt, e.settling, e.since = false, false, nil
		s.resize(e, int64(proto.Size(e.answer)))
		if logged && proto.Size(e.answer) > backend.MaxInline {
			e.answer, e.logged = nil, true
		}
	case s.entries[e.key] != e:
	case unsettled:
		s.put(&entry{
			key: e.key, request: e.request, expires: e.expires, done: e.done, doubt: true, since: e.since, err: e.err,
		})
	default:
		s.remove(e)
	}
	close(e.done)
}
