// Package idempotency carries out requests that may arrive more than once. A repeated request gets the answer to the
// first one, so that a client can safely retry. A detached operation continues when its caller leaves. An operation that
// a crash interrupted is settled: its Settlement finds out whether it took effect.
//
// Runner.mu guards all entries. Detached operations run on goroutines of the shutdown.Coordinator, which joins them.
package idempotency

import (
	"container/list"
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
)

// Limits.
const (
	// Keep is how long an answer is stored.
	Keep = 24 * time.Hour
	// MaxIDLength is the longest request id.
	MaxIDLength = 128
)

// Runner runs operations and remembers their answers by request id. Call New to make one. It is safe for concurrent use,
// except that Restore with a log must be called before the first Run.
type Runner struct {
	limits   func(tenant string) (own, all Quota)
	shutdown *shutdown.Coordinator
	log      *slog.Logger
	requests backend.Requests // nil: operations are in memory only
	// failing is set from a write to requests that failed until the next one that does not.
	failing atomic.Bool

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

// New returns a runner. limits returns the quota of a tenant and that of all tenants together; nil means the defaults.
func New(s *shutdown.Coordinator, limits func(tenant string) (own, all Quota), log *slog.Logger) *Runner {
	if limits == nil {
		limits = func(string) (own, all Quota) {
			return Quota{DefaultRequests, DefaultBytes}, Quota{DefaultTotalRequests, DefaultTotalBytes}
		}
	}
	return &Runner{limits: limits, shutdown: s, log: log, entries: map[backend.Key]*entry{}, tenants: map[string]*tenant{}}
}

// claim returns the entry of a request that the caller must carry out or, if settling is set, settle. If there is
// nothing to do, e is nil, and the request has an answer or an error. settles says that the caller can settle.
func (r *Runner) claim(ctx context.Context, k backend.Key, request proto.Message, settles bool) (
	e *entry, settling bool, answer proto.Message, err error) {
	if len(k.ID) > MaxIDLength {
		err = fault.New(fault.InvalidField, "longer than %d characters", MaxIDLength).WithField("request_id")
		return nil, false, nil, err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, false, nil, fault.Wrap(err, fault.Internal, "encoding a request")
	}
	if err := r.look(k); err != nil {
		return nil, false, nil, err
	}
	for {
		e, mine, err := r.enter(k, sha256.Sum256(encoded))
		if err != nil {
			return nil, false, nil, err
		}
		if mine {
			return e, e.doubt && settles, nil, nil
		}
		select {
		case <-e.done:
			if e.err == nil {
				answer, err = r.answer(e)
				return nil, false, answer, err
			}
		case <-ctx.Done():
			return nil, false, nil, fault.Wrap(ctx.Err(), fault.Cancelled, "waiting for the same request")
		}
	}
}

// finder is a log of requests of several processes.
type finder interface {
	Find(ctx context.Context, key backend.Key) (backend.Request, bool, error)
}

// look remembers a request that another process has recorded in the log since this one began. The requests about a session
// are read with the session.
func (r *Runner) look(k backend.Key) error {
	shared, ok := r.requests.(finder)
	if !ok || strings.Contains(k.Operation, "\x00") {
		return nil
	}
	r.mu.Lock()
	known := r.entries[k] != nil
	r.mu.Unlock()
	if known {
		return nil
	}
	var e *entry
	q, found, err := shared.Find(context.Background(), k)
	if err == nil && found {
		e, err = entryOf(q)
	}
	if err != nil {
		return fault.Wrap(err, fault.SessionUnavailable, "it is not known whether the request was carried out before").
			WithRetry(time.Second)
	}
	if !found || !q.Expires.After(time.Now()) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[k] == nil { // the request may have arrived again meanwhile
		r.put(e)
		r.resize(e, q.Bytes)
	}
	return nil
}

// enter finds the entry of a key, or creates one that the caller must complete. It fails if the key was used for a
// different request or if the quota is used up.
func (r *Runner) enter(k backend.Key, request [sha256.Size]byte) (e *entry, mine bool, err error) {
	r.mu.Lock()
	expired := r.expire(k.Tenant)
	defer r.forget(expired)
	defer r.mu.Unlock()
	found := r.entries[k]
	if found != nil {
		if found.request != request {
			err := fault.New(fault.RequestIDReused, "request id %q was used for a different request: choose a new id", k.ID)
			return nil, false, err.WithField("request_id")
		}
		if !found.doubt || found.settling {
			return found, false, nil
		}
	} else if err := r.admit(k); err != nil {
		return nil, false, err
	}
	e = r.add(k, request)
	if found != nil {
		e.doubt, e.settling, e.since = true, true, found.since
		r.resize(e, 0)
	}
	return e, true, nil
}

// answer returns the answer of a request that has ended.
func (r *Runner) answer(e *entry) (proto.Message, error) {
	r.mu.Lock()
	answer, logged := e.answer, e.logged
	r.mu.Unlock()
	if answer != nil || !logged {
		return answer, nil
	}
	name, text, err := r.requests.Answer(e.key)
	if err == nil {
		answer, err = parseAnswer(name, text)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Internal, "the request was carried out, but its stored answer cannot be read")
	}
	return answer, nil
}

// run carries out the request of an entry by do, and completes the entry. With a settlement, the log has that the request
// begins. If do panics, run completes the entry as a failure.
func run[T proto.Message](
	ctx context.Context, r *Runner, e *entry, s *Settlement[T], do func(ctx context.Context, done func(T, error)),
	done func(T, error),
) {
	begun := s != nil || e.doubt
	if s != nil {
		if e.err = r.begin(e, s.Before(ctx)); e.err != nil {
			var none T
			r.end(e, true, false)
			done(none, e.err)
			return
		}
	}
	returned := false
	defer func() {
		if !returned && e.ended.CompareAndSwap(false, true) { // nothing is recorded: the next process finds out what became of it
			e.err = fault.New(fault.Internal, "the request panicked")
			r.complete(e, false, false)
		}
	}()
	do(ctx, func(answer T, err error) {
		if !e.ended.CompareAndSwap(false, true) {
			return
		}
		if e.err = err; err == nil {
			e.answer = answer
		}
		r.end(e, begun, e.unsettled() || s.leavesUnknown(err))
		done(answer, err)
	})
	returned = true
}

// begin writes down that a request begins: only a recorded request can be settled later. If that fails, the request is
// carried out nevertheless, unless another process may get the same one while this one runs: that process would carry it out
// once more. begin may hang in the disk's call.
func (r *Runner) begin(e *entry, since []byte) error {
	r.mu.Lock()
	e.since = since
	r.resize(e, 0)
	r.mu.Unlock()
	written := r.write(backend.Request{Key: e.key, Sum: e.request[:], Expires: e.expires, Since: since})
	if _, shared := r.requests.(finder); shared && !written {
		return fault.New(fault.SessionUnavailable, "the storage does not take requests now").WithRetry(time.Second)
	}
	return nil
}

// end records the end of a request, and completes it for all that wait for it. begun says that the log has its beginning,
// unsettled that its outcome is unknown. end may hang in the disk's call.
func (r *Runner) end(e *entry, begun, unsettled bool) {
	logged := false
	switch {
	case unsettled:
	case e.err == nil:
		logged = r.writeAnswer(e)
	case begun:
		r.write(backend.Request{Key: e.key, Sum: e.request[:], Expires: e.expires, Over: true})
	}
	r.complete(e, unsettled, logged)
}

// unsettled reports whether the outcome of a request that was settled is still unknown.
func (e *entry) unsettled() bool {
	return e.settling && e.err != nil && fault.ReasonOf(e.err) != fault.SendUnconfirmed
}

// complete ends the waiting for a request. unsettled says that its outcome is unknown, logged that the log has its
// answer.
func (r *Runner) complete(e *entry, unsettled, logged bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case e.err == nil:
		e.doubt, e.settling, e.since = false, false, nil
		r.resize(e, int64(proto.Size(e.answer)))
		if logged && proto.Size(e.answer) > backend.MaxInline {
			e.answer, e.logged = nil, true
		}
	case r.entries[e.key] != e:
	case unsettled:
		r.put(&entry{
			key: e.key, request: e.request, expires: e.expires, done: e.done, doubt: true, since: e.since, err: e.err,
		})
	default:
		r.remove(e)
	}
	close(e.done)
}
