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
	Kinds []bridgev1.CallbackKind
	// Labels of the sessions.
	Labels map[string]string
	// The tenant that owns the sessions.
	Owner string
	// Name of the handler for the server's log. Default: [WithName].
	Name string
	// Time for which callbacks still wait after the stream has ended. Default: 30 s.
	Grace time.Duration
}

// PendingChange is a callback that waits for an answer, or no longer does.
type PendingChange struct {
	// Without its request if that is very large: see Callback.total_bytes of the API.
	Callback *bridgev1.Callback
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
		SessionId: p.Callback.GetSessionId(), CallbackId: p.Callback.GetCallbackId(),
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
	req := &bridgev1.WatchPendingRequest{
		Filter: &bridgev1.PendingFilter{Kinds: opts.Kinds, Labels: opts.Labels, Owner: opts.Owner},
		Handle: opts.Handle, Name: cmp.Or(opts.Name, c.name), HeartbeatInterval: durationpb.New(heartbeat),
	}
	if opts.Grace > 0 {
		req.Grace = durationpb.New(opts.Grace)
	}
	return func(yield func(PendingChange, error) bool) {
		var list inbox.List
		open := func(ctx context.Context) (grpc.ServerStreamingClient[bridgev1.WatchPendingResponse], error) {
			list.Restart()
			return c.callbacks.WatchPending(ctx, req)
		}
		err := watch(ctx, c, open, func(frame *bridgev1.WatchPendingResponse) bool {
			for _, change := range list.Take(frame) {
				if !yield(PendingChange{change.Callback, change.Ended, change.Resolved, c}, nil) {
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

// GetUsage returns what the caller's open sessions have used of models: one row for each
// combination of the request's groups, or one with the sum.
func (c *Client) GetUsage(ctx context.Context, req *bridgev1.GetUsageRequest) ([]*bridgev1.UsageRow, error) {
	resp, err := c.sessions.GetUsage(ctx, req)
	return resp.GetRows(), FromError(err)
}
