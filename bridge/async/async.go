// Package async has the one way in which a call waits for an operation that reports its end by a callback.
//
// Operations that must not hold a goroutine while the CLI works have one form: a function Start that takes a function
// done. Start calls done exactly once, perhaps before it returns. A caller that waits uses Wait.
package async

import (
	"context"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// ErrStopping is the error of an operation that could not go on because the bridge stops.
var ErrStopping error = fault.New(fault.Draining, "the server stops before the request is carried out")

// Wait starts an operation and waits for its end. If ctx ends first, Wait returns TIMEOUT or CANCELLED, and the operation
// continues unless it observes ctx itself.
func Wait[T any](ctx context.Context, start func(done func(T, error))) (T, error) {
	type result struct {
		value T
		err   error
	}
	ended := make(chan result, 1)
	start(func(value T, err error) { ended <- result{value, err} })
	select {
	case r := <-ended:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-ended: // at the same time
		return r.value, r.err
	default:
		var none T
		return none, abandoned(ctx.Err())
	}
}

// abandoned is the error of a caller that did not wait.
func abandoned(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Timeout, "the CLI did not answer in time")
	}
	return fault.Wrap(err, fault.Cancelled, "the caller cancelled the call")
}
