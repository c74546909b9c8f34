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
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Limits.
const (
	// Keep is how long an answer is stored.
	Keep = 24 * time.Hour
	// MaxIDLength is the longest request id.
	MaxIDLength = 128
	// MaxInline is the largest answer that stays in memory if a log stores it too.
	MaxInline = 1 << 10
)

// Store stores answers by request id. Use New to create one. It is safe for concurrent use, except Keep and Remember,
// which must be called before the first request.
type Store struct {
	now    func() time.Time
	limits func(tenant string) (own, all Quota)
	log    Log // may be nil

	mu      sync.Mutex
	entries map[Key]*entry
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
	key     Key
	request [sha256.Size]byte
	expires time.Time
	done    chan struct{}
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
	Begun(key Key, request []byte, expires time.Time, since []byte) error
	// Ended records the end of a request: an answer, or nil for a failure.
	Ended(key Key, request []byte, expires time.Time, answer proto.Message) error
	// Answer reads an answer that Ended recorded.
	Answer(key Key) (proto.Message, error)
	// Forget drops a request that has expired or was removed for a quota. It keeps a newer request with the same key,
	// which expires later.
	Forget(key Key, expires time.Time)
	// Compact compacts the log as far as possible.
	Compact(ctx context.Context) error
	// Close closes the log.
	Close() error
}

// Finder is a Log to which other processes write, too.
type Finder interface {
	// Find returns a request that any process has recorded; false if there is none.
	Find(key Key) (Remembered, bool, error)
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
	Key     Key
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
	return &Store{now: now, limits: limits, entries: map[Key]*entry{}, tenants: map[string]*tenant{}}
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

// Do returns f's answer to the request, or the answer to an earlier request with the same key; it waits for one that
// is still running. Failures are not stored: the next request tries again. An empty id always calls f. If the quota
// is used up, Do returns LIMIT_EXCEEDED with the time to retry and does not call f. The answer is shared and must not
// be changed.
func (s *Store) Do(
	ctx context.Context, k Key, request proto.Message, f func() (proto.Message, error),
) (proto.Message, error) {
	return s.DoOrSettle(ctx, k, request, Doubt{}, f)
}

// DoOrSettle is Do for requests whose outcome can be determined after a crash: d does so for a request that an
// earlier process started and did not end. Without d such a request is carried out again.
func (s *Store) DoOrSettle(
	ctx context.Context, k Key, request proto.Message, d Doubt, f func() (proto.Message, error),
) (proto.Message, error) {
	if k.ID == "" {
		return f()
	}
	if len(k.ID) > MaxIDLength {
		return nil, fault.New(fault.InvalidField, "longer than %d characters", MaxIDLength).WithField("request_id")
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "encoding a request")
	}
	if err := s.look(k); err != nil {
		return nil, err
	}
	for {
		e, mine, err := s.enter(k, sha256.Sum256(encoded))
		if err != nil {
			return nil, err
		}
		if mine {
			if e.doubt && d.Settle != nil {
				return s.run(e, Doubt{}, func() (proto.Message, error) { return d.Settle(e.since) })
			}
			return s.run(e, d, f)
		}
		select {
		case <-e.done:
			if e.err == nil {
				return s.answer(e)
			}
		case <-ctx.Done():
			return nil, fault.Wrap(ctx.Err(), fault.Cancelled, "waiting for the same request")
		}
	}
}

// look remembers a request that another process has recorded in the log since this one began.
func (s *Store) look(k Key) error {
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
func (s *Store) enter(k Key, request [sha256.Size]byte) (e *entry, mine bool, err error) {
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

// run completes an entry. A panic in f completes it too, as a failure.
func (s *Store) run(e *entry, d Doubt, f func() (proto.Message, error)) (proto.Message, error) {
	b := &Begun{store: s, entry: e, doubt: d}
	b.Record()
	returned := false
	defer func() {
		if !returned { // nothing is recorded: the next process finds out what became of it
			e.err = fault.New(fault.Internal, "the request panicked")
			s.complete(e, false, false)
		}
	}()
	answer, err := f()
	returned = true
	b.End(answer, err)
	return answer, err
}

// unsettled reports whether the outcome of the request is still unknown.
func (e *entry) unsettled() bool {
	return e.settling && e.err != nil && fault.ReasonOf(e.err) != fault.SendUnconfirmed
}
