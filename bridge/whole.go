package bridge

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// wholeTimeout bounds a request that goes on without its caller.
const wholeTimeout = 5 * time.Minute

// whole carries out a request that may come again under its id: to its end, even when the
// caller goes away in the middle. What is half done could be neither remembered nor
// repeated. Without an id it is the caller's alone.
func whole[T any](ctx context.Context, b *Bridge, id string, f func(context.Context) (T, error)) (T, error) {
	if id == "" {
		return f(ctx)
	}
	return detached(ctx, b, f)
}

// detached runs f on a goroutine of the bridge, which goes on when the caller goes away.
func detached[T any](ctx context.Context, b *Bridge, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	b.Go(func(stop context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wholeTimeout)
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		value, err := f(ctx)
		done <- result{value, err}
	})
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, session.Classify(ctx.Err(), "")
	case <-b.shutdown.Done():
	}
	select {
	case r := <-done: // it came to its end first
		return r.value, r.err
	default:
		return none, fault.New(fault.Draining, "the server stops before the request is carried out")
	}
}
