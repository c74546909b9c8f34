package copilot

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/pause"
)

// callPolicy is for calls that a request id makes idempotent: long enough for a runtime
// or a connection that is just being replaced, short enough to report a server that is
// not there.
var callPolicy = ReconnectPolicy{
	MinBackoff:  100 * time.Millisecond,
	MaxBackoff:  time.Second,
	GiveUpAfter: 3 * time.Second,
}

func newBackoff(p ReconnectPolicy) *pause.Backoff {
	return pause.New(p.MinBackoff, p.MaxBackoff, p.GiveUpAfter)
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
		if e == nil || e.Code != codes.Unavailable || ctx.Err() != nil || !b.Wait(ctx, e.RetryAfter) {
			return FromError(err)
		}
	}
}

// next waits before the attempt after a failure. It returns false if there is to be none. A replaced
// token is a reason for one attempt.
func next(ctx context.Context, b *pause.Backoff, failure *Error) bool {
	return (!failure.tokenReplaced || b.Excuse()) && b.Wait(ctx, failure.RetryAfter)
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
		return e.tokenReplaced
	}
}
