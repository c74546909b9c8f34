package copilot

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/protobuf/types/known/durationpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// GetSession returns the state of a session.
func (c *Client) GetSession(ctx context.Context, sessionID string) (*bridgev1.Session, error) {
	resp, err := c.sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: sessionID})
	return resp.GetSession(), FromError(err)
}

// LastSessionID returns the id of the session that was used last; empty if there is none.
func (c *Client) LastSessionID(ctx context.Context) (string, error) {
	resp, err := c.sessions.GetLastSession(ctx, &bridgev1.GetLastSessionRequest{})
	return resp.GetSessionId(), FromError(err)
}

// Pending yields the callbacks that wait for an answer in all sessions that the caller can
// see, oldest first, and fetches pages as they are needed. [Session.Resolve] answers one. An
// error ends the sequence.
func (c *Client) Pending(ctx context.Context) iter.Seq2[*bridgev1.Callback, error] {
	return func(yield func(*bridgev1.Callback, error) bool) {
		req := &bridgev1.ListPendingRequest{}
		for {
			page, err := c.callbacks.ListPending(ctx, req)
			if err != nil {
				yield(nil, FromError(err))
				return
			}
			for _, cb := range page.GetCallbacks() {
				if !yield(cb, nil) {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// WatchSessions yields changes of the caller's sessions: first one CURRENT change for each
// open session, then changes as they happen. A broken stream is opened again, and begins
// with the CURRENT changes. An error ends the sequence; so does Close, without an error.
func (c *Client) WatchSessions(ctx context.Context) iter.Seq2[*bridgev1.WatchSessionsResponse, error] {
	return func(yield func(*bridgev1.WatchSessionsResponse, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
		b := newBackoff(c.reconnect)
		for {
			err := c.watchOnce(ctx, b, yield)
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

// watchOnce reads one stream. It returns nil when the loop ended.
func (c *Client) watchOnce(
	ctx context.Context, b *backoff, yield func(*bridgev1.WatchSessionsResponse, error) bool,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := c.events.WatchSessions(ctx, &bridgev1.WatchSessionsRequest{
		HeartbeatInterval: durationpb.New(heartbeat),
	})
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
