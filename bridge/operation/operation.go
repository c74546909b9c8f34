// Package operation carries out requests that may arrive more than once. A repeated request
// gets the answer of the first one. A detached operation continues when its caller leaves. An
// operation that a crash interrupted is settled: its Settlement finds out whether it took effect.
//
// The package has no lock. A Runner uses an idempotency.Store, which has its own, and begins
// detached operations on goroutines of its shutdown.Coordinator, which joins them.
package operation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// detachedTimeout bounds a detached operation that waits, whether or not its caller is still there.
const detachedTimeout = 5 * time.Minute

// Runner runs operations and remembers their answers. Call New to make one. It is safe for
// concurrent use.
type Runner struct {
	answers  *idempotency.Store
	shutdown *shutdown.Coordinator
	log      *slog.Logger
}

// New returns a runner. quota returns how much it may remember for a tenant and for all tenants
// together; nil for the defaults.
func New(s *shutdown.Coordinator, quota func(tenant string) (own, all idempotency.Quota), log *slog.Logger) *Runner {
	return &Runner{answers: idempotency.New(time.Now, quota), shutdown: s, log: log}
}

// Go runs f in the background until the bridge closes; then it does nothing and returns false.
func (r *Runner) Go(f func(ctx context.Context)) bool { return r.shutdown.Go(f) }

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

// On returns the scope of a call on one session.
func On(call, sessionID string) string { return call + "\x00" + sessionID }

// Blocking returns the Do of a function that waits and returns the answer.
func Blocking[T proto.Message](f func(ctx context.Context) (T, error)) func(context.Context, func(T, error)) {
	return func(ctx context.Context, done func(T, error)) { done(bounded(ctx, f)) }
}

// Start carries out an operation of the caller in ctx, or takes the answer to an earlier request with the same id, for
// which it waits if necessary. It calls done once. Failures are not remembered. With an ID, Start does not block if
// Detach is set: done is called on another goroutine then. Otherwise Start blocks as its Do does, and while the same
// request is running.
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
	idempotency.Start(ctx, r.answers, op.key(ctx), withoutTrace(op.Request), op.doubt(ctx), op.Do, done)
}

func (op *Operation[T]) key(ctx context.Context) backend.Key {
	return backend.Key{Tenant: caller.From(ctx).Tenant, Operation: op.Scope, ID: op.ID}
}

// doubt is the operation's Settlement as the store wants it.
func (op *Operation[T]) doubt(ctx context.Context) idempotency.Doubt {
	s := op.Settle
	if s == nil {
		return idempotency.Doubt{}
	}
	return idempotency.Doubt{
		Since: func() []byte { return s.Before(ctx) },
		Settle: func(before []byte) (proto.Message, error) {
			answer, err := bounded(ctx, func(ctx context.Context) (T, error) { return s.Find(ctx, before) })
			if err != nil {
				return nil, err // and not an interface with a nil T
			}
			return answer, nil
		},
		Open: s.Unconfirmed,
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
