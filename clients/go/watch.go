package copilot

import (
	"context"
	"errors"
	"io"
	"iter"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// WatchSessions yields changes of the caller's sessions: first a CURRENT change for each
// open session, then changes as they happen. A broken stream is opened again, and begins
// with the open sessions. An error is the last element.
func (c *Client) WatchSessions(ctx context.Context) iter.Seq2[*bridgev1.WatchSessionsResponse, error] {
	return func(yield func(*bridgev1.WatchSessionsResponse, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
		b := newBackoff(c.reconnect)
		for {
			err := c.readChanges(ctx, b, yield)
			if err == nil {
				return
			}
			e := asError(err)
			again := e != nil && e.isBroken() && ctx.Err() == nil && b.wait(ctx, e)
			switch {
			case errors.Is(context.Cause(ctx), ErrClosed):
				return
			case ctx.Err() != nil:
				yield(nil, context.Cause(ctx))
				return
			case !again:
				yield(nil, err)
				return
			}
			c.log.Warn("stream of sessions broken", "error", err)
		}
	}
}

// readChanges reads one stream. It returns nil when the loop has ended.
func (c *Client) readChanges(
	ctx context.Context, b *backoff, yield func(*bridgev1.WatchSessionsResponse, error) bool,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := c.events.WatchSessions(ctx, &bridgev1.WatchSessionsRequest{})
	if err != nil {
		return FromError(err)
	}
	next := recvWithin(stream, silence, cancel)
	for {
		change, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return unavailable("the server ended the stream of sessions")
		case err != nil && ctx.Err() != nil:
			return FromError(context.Cause(ctx))
		case err != nil:
			return FromError(err)
		}
		b.reset()
		if change.GetChange() == bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT {
			continue
		}
		if !yield(change, nil) {
			return nil
		}
	}
}
