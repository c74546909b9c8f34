package stream

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/internal/deepcall"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// Each subscription is a goroutine, and most subscriptions are idle most of the time. The goroutine's stack is
// then the largest part of their memory. It stays at 4 KB as long as it needs no more than 3.1 KB, of which the frames
// of gRPC take 1.3 and the runtime's select up to 1.0, when it needs memory and has to take a new span for it. So an
// idle subscription waits in small functions, and everything that it
// does meanwhile runs on the stacks of other goroutines: its beginning, heartbeats, and events before the position at
// which it began. When it has received events, it sends the next ones itself, on a stack that has grown.

// idle serves a subscription until it receives events, the server or the connection is about to end, or all sessions'
// frames have ended.
func (st *Stream) idle(ctx context.Context) error {
	for st.open > 0 && !st.streaming {
		switch st.waitIdle(ctx) {
		case isReady:
			if err := st.serveApart(ctx); err != nil {
				return err
			}
		case isCancelled:
			return session.Classify(context.Cause(ctx), "")
		default:
			return nil // loop finds the same
		}
	}
	return nil
}

// waitIdle waits for less than wait, because a subscription has no frames of other origin, and the other signals come
// after these. It is a separate function, so that its frame is on the stack only meanwhile.
//
//go:noinline
func (st *Stream) waitIdle(ctx context.Context) cause {
	select {
	case <-st.ready.signal:
		return isReady
	case <-st.service.shutdown.Changing():
		return isChanging
	case <-leaving.From(ctx).Away:
		return isAway
	case <-ctx.Done():
		return isCancelled
	}
}

// serveApart is serve on another stack.
//
//go:noinline
func (st *Stream) serveApart(ctx context.Context) error {
	return deepcall.Do(func() error {
		ready, err := st.serve(ctx, nil)
		for _, f := range ready {
			st.streaming = st.streaming || f.streaming
		}
		if !st.streaming {
			st.batch = nil // it may wait for long
		}
		return err
	})
}
