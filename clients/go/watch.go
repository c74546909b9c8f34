package copilot

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/pause"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// GetSession returns the state of a session.
func (c *Client) GetSession(ctx context.Context, sessionID string) (*SessionInfo, error) {
	resp, err := c.sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: sessionID})
	if err != nil {
		return nil, FromError(err)
	}
	return newSessionInfo(resp.GetSession()), nil
}

// LastSessionID returns the id of the session that was used last; empty if there is none.
func (c *Client) LastSessionID(ctx context.Context) (string, error) {
	resp, err := c.sessions.GetLastSession(ctx, &bridgev1.GetLastSessionRequest{})
	return resp.GetSessionId(), FromError(err)
}

// Pending yields the callbacks that wait for an answer in all sessions that the caller can
// see, oldest first, and fetches pages as they are needed. [Session.Resolve] answers one. An
// error ends the sequence.
func (c *Client) Pending(ctx context.Context) iter.Seq2[*Callback, error] {
	return func(yield func(*Callback, error) bool) {
		req := &bridgev1.ListPendingRequest{}
		for {
			page, err := c.callbacks.ListPending(ctx, req)
			if err != nil {
				yield(nil, FromError(err))
				return
			}
			for _, cb := range page.GetCallbacks() {
				if !yield(newCallback(cb), nil) {
					return
				}
			}
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				return
			}
		}
	}
}

// WatchSessions yields changes of the caller's sessions, or of those that match a filter, which
// may be nil: first one "current" change for each open session, then changes as they happen. A
// broken stream is opened again, and begins with the "current" changes. An error ends the
// sequence; so does Close, without an error.
func (c *Client) WatchSessions(ctx context.Context, filter *SessionFilter) iter.Seq2[*SessionChange, error] {
	open := func(ctx context.Context) (grpc.ServerStreamingClient[bridgev1.WatchSessionsResponse], error) {
		return c.events.WatchSessions(ctx, &bridgev1.WatchSessionsRequest{
			HeartbeatInterval: durationpb.New(heartbeat), Filter: filter,
		})
	}
	return func(yield func(*SessionChange, error) bool) {
		err := watch(ctx, c, open, func(change *bridgev1.WatchSessionsResponse) bool {
			return change.GetChange() == bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT ||
				yield(newSessionChange(change), nil)
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// watch reads streams, one after another, until take returns false, the client is closed, or
// an error is final.
func watch[T any](
	ctx context.Context, c *Client,
	open func(context.Context) (grpc.ServerStreamingClient[T], error), take func(*T) bool,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	b := newBackoff(c.reconnect)
	for {
		err := watchOnce(ctx, b, open, take)
		if err == nil {
			return nil
		}
		e := asError(err)
		again := e != nil && e.isBroken() && ctx.Err() == nil && next(ctx, b, e)
		switch {
		case errors.Is(context.Cause(ctx), ErrClosed):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !again:
			return err
		}
		c.log.Warn("stream of changes broken", "error", err)
	}
}

// watchOnce reads one stream. It returns nil when take returned false.
func watchOnce[T any](
	ctx context.Context, b *pause.Backoff,
	open func(context.Context) (grpc.ServerStreamingClient[T], error), take func(*T) bool,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := open(ctx)
	if err != nil {
		return FromError(err)
	}
	next := recvWithin(stream, silence, cancel)
	for {
		change, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return unavailable("the server ended the stream of changes")
		case err != nil && ctx.Err() != nil:
			return FromError(context.Cause(ctx))
		case err != nil:
			return FromError(err)
		}
		b.Reset()
		if !take(change) {
			return nil
		}
	}
}
