package idempotency

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// detachedTimeout bounds a detached operation that waits, whether or not its caller is still there.
const detachedTimeout = 5 * time.Minute

// Operation is a request and how to carry it out.
type Operation[T proto.Message] struct {
	// Scope is the call, or the call on a session (see On). Request ids of two scopes, or of
	// two tenants, are independent.
	Scope string
	// ID is the request id. An operation without one is not remembered, not detached and not
	// settled.
	ID string
	// Request distinguishes a repeated request from a reused id. The trace context of its
	// prompt does not count.
	Request proto.Message
	// Detach carries out the operation in the background: it continues when its caller leaves. The context of Do then ends
	// with the bridge, and that of a Blocking function also after five minutes.
	Detach bool
	// Do carries out the operation, and calls done once with the answer, on any goroutine, which done may block. All
	// callers share the answer: they must not change it. Blocking makes a Do of a function that waits.
	Do func(ctx context.Context, done func(T, error))
	// Settle finds the answer of an operation that was interrupted. Without it, such an
	// operation is carried out again.
	Settle *Settlement[T]
	// Repeated returns the answer for a request that this call has not carried out: the answer of an earlier one as far as
	// it is still true. It must not change that. Nil leaves it as it is.
	Repeated func(ctx context.Context, answer T) (T, error)
}

// Settlement describes how to resolve an operation whose outcome is unknown after a crash.
type Settlement[T proto.Message] struct {
	// Before returns what Find needs to know of the time before the operation. It is stored
	// when the operation starts.
	Before func(ctx context.Context) []byte
	// Find returns the answer. SEND_UNCONFIRMED ends the search: the next request with the id is
	// carried out. After any other error the next request tries Find again.
	Find func(ctx context.Context, before []byte) (T, error)
	// Unconfirmed reports whether a failure of Do leaves the outcome unknown; nil means never.
	Unconfirmed func(error) bool
}

// leavesUnknown reports whether an error of Do leaves the outcome unknown.
func (s *Settlement[T]) leavesUnknown(err error) bool {
	return s != nil && s.Unconfirmed != nil && err != nil && s.Unconfirmed(err)
}

// On returns the scope of a call on one session.
func On(call, sessionID string) string { return call + "\x00" + sessionID }

// Blocking returns the Do of a function that waits and returns the answer.
func Blocking[T proto.Message](f func(ctx context.Context) (T, error)) func(context.Context, func(T, error)) {
	return func(ctx context.Context, done func(T, error)) { done(bounded(ctx, f)) }
}

// Start carries out an operation of the caller in ctx, or takes the answer to an earlier request with the same id, for
// which it waits if necessary. It calls done once, with an answer that is shared and must not be changed. Failures are not
// remembered: the next request tries again. If the quota is used up, the request ends with LIMIT_EXCEEDED and the time to
// retry.
//
// With an ID, Start does not block if Detach is set: done is called on another goroutine then. Otherwise Start blocks as
// its Do does, in the disk's call, and while the same request is running.
func Start[T proto.Message](ctx context.Context, r *Runner, op Operation[T], done func(T, error)) {
	switch {
	case op.ID == "":
		op.Do(ctx, done)
	case op.Detach:
		startDetached(ctx, r, &op, done)
	default:
		startOnce(ctx, r, &op, done)
	}
}

// Run is Start, and waits for the end of the operation or of ctx.
func Run[T proto.Message](ctx context.Context, r *Runner, op Operation[T]) (T, error) {
	return async.Wait(ctx, func(done func(T, error)) { Start(ctx, r, op, done) })
}

// startDetached carries out an operation in the background.
func startDetached[T proto.Message](ctx context.Context, r *Runner, op *Operation[T], done func(T, error)) {
	started := r.shutdown.Go(func(stop context.Context) {
		startOnce(detached{stop, ctx}, r, op, done)
	})
	if !started {
		r.shutdown.Spawn(func() {
			var none T
			done(none, async.ErrStopping)
		})
	}
}

// detached is the context of a detached operation: it ends with the bridge, and has the values of the caller's context.
// It has no timer: most operations are prompts, whose waits have limits of their own. context.WithoutCancel would allocate
// with each look-up of a value.
type detached struct {
	context.Context
	caller context.Context
}

// Value returns a value of the caller's context.
func (d detached) Value(key any) any { return d.caller.Value(key) }

// AfterFunc lets contexts that are derived from d end with it without a goroutine each.
func (d detached) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(d.Context, f) }

// bounded calls f, which waits, for at most detachedTimeout if its operation is detached.
func bounded[T proto.Message](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	if _, ok := ctx.(detached); !ok {
		return f(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, detachedTimeout)
	defer cancel()
	answer, err := f(limited)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = async.ErrStopping
	}
	return answer, err
}

// startOnce carries out an operation unless the same request has an answer or is running.
func startOnce[T proto.Message](ctx context.Context, r *Runner, op *Operation[T], done func(T, error)) {
	k := backend.Key{Tenant: caller.From(ctx).Tenant, Operation: op.Scope, ID: op.ID}
	repeated := func(answer T, err error) {
		if err == nil && op.Repeated != nil {
			answer, err = op.Repeated(ctx, answer)
		}
		done(answer, err)
	}
	e, settling, m, err := r.claim(ctx, k, withoutTrace(op.Request), op.Settle != nil)
	switch {
	case e == nil:
		answer, _ := m.(T)
		repeated(answer, err)
	case settling:
		find := Blocking(func(ctx context.Context) (T, error) { return op.Settle.Find(ctx, e.since) })
		run(ctx, r, e, nil, find, repeated)
	default:
		run(ctx, r, e, op.Settle, op.Do, done)
	}
}

// withoutTrace returns the request without the trace context of its prompt, which differs
// between retries.
func withoutTrace(request proto.Message) proto.Message {
	r, ok := request.(interface{ GetPrompt() *bridgev1.Prompt })
	if !ok || r.GetPrompt().GetTraceparent() == "" {
		return request
	}
	bare := proto.Clone(request)
	p := bare.(interface{ GetPrompt() *bridgev1.Prompt }).GetPrompt()
	p.Traceparent, p.Tracestate = "", ""
	return bare
}
