package copilot

import (
	"context"
	"time"

	exponential "github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc/codes"
)

// callPolicy is for calls that a request id makes idempotent: long enough for a runtime
// or a connection that is just being replaced, short enough to report a server that is
// not there.
var callPolicy = ReconnectPolicy{
	MinBackoff:  100 * time.Millisecond,
	MaxBackoff:  time.Second,
	GiveUpAfter: 3 * time.Second,
}

// backoff counts the tries of one stream or call.
type backoff struct {
	policy ReconnectPolicy
	pauses exponential.ExponentialBackOff
	alive  time.Time
}

func newBackoff(p ReconnectPolicy) *backoff {
	// Each pause is anything between 0 and a limit that doubles: half of the limit, give or take all of it.
	b := &backoff{policy: p, pauses: exponential.ExponentialBackOff{
		InitialInterval: p.MinBackoff / 2, RandomizationFactor: 1, Multiplier: 2, MaxInterval: p.MaxBackoff / 2,
	}}
	b.reset()
	return b
}

// reset notes that the stream is alive.
func (b *backoff) reset() {
	b.pauses.Reset()
	b.alive = time.Now()
}

// wait sleeps before the next try. It returns false, at once where it can, when there
// shall be none: time is up, or ctx is over.
func (b *backoff) wait(ctx context.Context, e *Error) bool {
	delay := e.RetryAfter + b.pauses.NextBackOff()
	if time.Since(b.alive)+delay >= b.policy.GiveUpAfter {
		return false
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry makes a call that may be made several times, until it succeeds or fails for good.
func retry(ctx context.Context, policy ReconnectPolicy, call func() error) error {
	b := newBackoff(policy)
	for {
		err := call()
		if err == nil {
			return nil
		}
		e := asError(err)
		if e == nil || e.Code != codes.Unavailable || ctx.Err() != nil || !b.wait(ctx, e) {
			return FromError(err)
		}
	}
}

// isBroken reports whether a stream ended by no decision of the server: it can be
// opened again. Proxies and HTTP/2 report a cut connection under several codes, but
// only the server gives a reason.
func (e *Error) isBroken() bool {
	switch e.Code {
	case codes.Unavailable:
		return true
	case codes.Canceled, codes.Unknown, codes.Internal, codes.DeadlineExceeded:
		return !e.fromServer()
	default:
		return false
	}
}
