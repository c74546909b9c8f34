// Package operation carries out requests that may arrive more than once. A repeated request
// gets the answer of the first one. A detached operation continues when its caller leaves. An
// operation that a crash interrupted is settled: its Settlement finds out whether it took effect.
//
// The package has no lock. A Runner uses an idempotency.Store, which has its own, and starts
// the goroutines of detached operations by its shutdown.Coordinator, which joins them.
package operation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// detachedTimeout bounds a detached operation, whether or not its caller is still there.
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

// Go runs f in the background until the bridge closes.
func (r *Runner) Go(f func(ctx context.Context)) { r.shutdown.Go(f) }

// GoFor runs f in the background for the caller in ctx. Its context does not end with ctx, but after five minutes or
// with the bridge.
func (r *Runner) GoFor(ctx context.Context, f func(ctx context.Context)) {
	r.shutdown.Go(func(stop context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachedTimeout)
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		f(ctx)
	})
}

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
	// Detach continues the operation when the context of Run ends.
	Detach bool
	// Do carries out the operation. Its answer is shared by all callers: they must not change it.
	Do func(ctx context.Context) (T, error)
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

// Run carries out an operation of the caller in ctx, or returns the answer to an earlier request
// with the same id, waiting for it if necessary. Failures are not remembered.
func Run[T proto.Message](ctx context.Context, r *Runner, op Operation[T]) (T, error) {
	switch {
	case op.ID == "":
		return op.Do(ctx)
	case op.Detach:
		return Detach(ctx, r, func(ctx context.Context) (T, error) { return once(ctx, r, &op) })
	}
	return once(ctx, r, &op)
}

// Begin is Run for a caller that carries out the operation itself, in place of op.Do, and does not wait for it. It
// returns nil, and does nothing, if Run must be called: without an id, if the operation may have been carried out
// before, or if it is refused. Begin waits for nothing.
func Begin[T proto.Message](ctx context.Context, r *Runner, op *Operation[T]) *idempotency.Begun {
	return r.answers.Begin(op.key(ctx), withoutTrace(op.Request), op.doubt(ctx))
}

func (op *Operation[T]) key(ctx context.Context) idempotency.Key {
	return idempotency.Key{Tenant: caller.From(ctx).Tenant, Operation: op.Scope, ID: op.ID}
}

func once[T proto.Message](ctx context.Context, r *Runner, op *Operation[T]) (T, error) {
	do := func() (proto.Message, error) { return op.Do(ctx) }
	answer, err := r.answers.DoOrSettle(ctx, op.key(ctx), withoutTrace(op.Request), op.doubt(ctx), do)
	if err != nil {
		var none T
		return none, err
	}
	return answer.(T), nil
}

// doubt is the operation's Settlement as the store wants it.
func (op *Operation[T]) doubt(ctx context.Context) idempotency.Doubt {
	s := op.Settle
	if s == nil {
		return idempotency.Doubt{}
	}
	return idempotency.Doubt{
		Since:  func() []byte { return s.Before(ctx) },
		Settle: func(before []byte) (proto.Message, error) { return s.Find(ctx, before) },
		Open:   s.Unconfirmed,
	}
}

// Detach runs f on a new goroutine that continues when ctx ends; Detach then returns CANCELLED or TIMEOUT. f
// ends with the bridge or after five minutes.
func Detach[T any](ctx context.Context, r *Runner, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	r.GoFor(ctx, func(ctx context.Context) {
		value, err := f(ctx)
		done <- result{value, err}
	})
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, abandoned(ctx.Err())
	case <-r.shutdown.Done():
	}
	select {
	case r := <-done: // f ended first
		return r.value, r.err
	default:
		return none, fault.New(fault.Draining, "the server stops before the request is carried out")
	}
}

// abandoned is the error of a caller that did not wait.
func abandoned(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, "the CLI did not answer in time")
	}
	return fault.Wrap(err, fault.Cancelled, "the caller cancelled the call")
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
