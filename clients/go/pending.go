package copilot

import (
	"cmp"
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/clients/go/internal/inbox"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// PendingOptions selects the callbacks of [Client.WatchPending]. Fields without a value select all.
type PendingOptions struct {
	// Callbacks wait for this program, instead of getting their default answers when no
	// participant handles them. This begins with the first change.
	Handle bool
	// Default: with Handle the kinds that people answer, else all but the frequent ones.
	Kinds []CallbackKind
	// Labels of the sessions.
	Labels map[string]string
	// The tenant that owns the sessions.
	Owner string
	// Name of the handler for the server's log. Default: [WithName].
	Name string
	// Time for which callbacks still wait after the stream has ended. Default: 30 s.
	Grace time.Duration
}

// Callback is something that the CLI asks, as [Client.Pending], [Session.Pending] and [Client.WatchPending] return it.
type Callback struct {
	// The callback's id, as in [Session.Resolve].
	ID string
	// The session.
	SessionID string
	// Its kind.
	Kind CallbackKind
	// The callback as a message, with its request. The request of a very large one is left out: see
	// Callback.total_bytes of the API.
	Proto *bridgev1.Callback
}

func newCallback(cb *bridgev1.Callback) *Callback {
	return &Callback{cb.GetCallbackId(), cb.GetSessionId(), wordOf[CallbackKind](cb.GetKind()), cb}
}

// PendingChange is a callback that waits for an answer, or no longer does.
type PendingChange struct {
	*Callback
	// The callback no longer waits, or this program may no longer see it.
	Ended bool
	// How the callback ended, and who answered it; nil if the server did not say.
	Resolved *bridgev1.CallbackResolved

	client *Client
}

// Answer answers the callback. [AnswerApprove] and the like make answers. The error has the reason
// CALLBACK_RESOLVED if the callback has ended.
func (p PendingChange) Answer(ctx context.Context, answer *bridgev1.Answer) error {
	req := &bridgev1.ResolveRequest{
		SessionId: p.SessionID, CallbackId: p.ID,
		Answer: answer, RequestId: newRequestID(),
	}
	return retry(ctx, p.client.callPolicy(), func() error {
		_, err := p.client.callbacks.Resolve(ctx, req)
		return FromError(err)
	})
}

// WatchPending yields the callbacks that wait in all sessions, present and future, as an inbox
// for people: each once when it waits, and once when it no longer does, also if the stream breaks
// meanwhile. An error ends the sequence; so does Close, without an error.
func (c *Client) WatchPending(ctx context.Context, opts PendingOptions) iter.Seq2[PendingChange, error] {
	kinds, wrong := valuesOf[bridgev1.CallbackKind](opts.Kinds)
	req := &bridgev1.WatchPendingRequest{
		Filter: &bridgev1.PendingFilter{Kinds: kinds, Labels: opts.Labels, Owner: opts.Owner},
		Handle: opts.Handle, Name: cmp.Or(opts.Name, c.name), HeartbeatInterval: durationpb.New(heartbeat),
	}
	if opts.Grace > 0 {
		req.Grace = durationpb.New(opts.Grace)
	}
	return func(yield func(PendingChange, error) bool) {
		if wrong != nil {
			yield(PendingChange{}, wrong)
			return
		}
		var list inbox.List
		open := func(ctx context.Context) (grpc.ServerStreamingClient[bridgev1.WatchPendingResponse], error) {
			list.Restart()
			return c.callbacks.WatchPending(ctx, req)
		}
		err := watch(ctx, c, open, func(frame *bridgev1.WatchPendingResponse) bool {
			for _, change := range list.Take(frame) {
				if !yield(PendingChange{newCallback(change.Callback), change.Ended, change.Resolved, c}, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(PendingChange{}, err)
		}
	}
}
