package attach

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// outlet sends the frames of a participant's stream, one at a time: those of the session, which the stream's goroutine
// sends, and replies. A reply that finds nothing before it is sent by the goroutine that has it, which saves the
// stream's goroutine a wake-up. Any other reply waits in queue for that goroutine.
type outlet struct {
	// queue has the replies that wait. It is the stream's Extra.
	queue chan frame.Frame
	// waiting counts the replies that are about to be in queue or were not yet sent from it.
	waiting atomic.Int32

	// mu is held while a frame is sent.
	mu sync.Mutex
	// sink is set while replies may be sent at once: from open to close.
	sink frame.Sink
}

func newOutlet(size int) *outlet { return &outlet{queue: make(chan frame.Frame, size)} }

// open lets replies be sent on a sink, and returns the sink of the stream's goroutine.
func (o *outlet) open(sink frame.Sink) frame.Sink {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink = sink
	return func(f frame.Frame) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		switch m := f.Message.(type) {
		case *bridgev1.AttachResponse:
			defer o.waiting.Add(-1)
		case *bridgev1.SubscribeResponse:
			if m.GetClosed() != nil {
				o.sink = nil // no reply comes after the session's last frame
			}
		}
		return sink(f)
	}
}

// close has replies wait in the queue.
func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sink = nil
}

// reply sends a reply. Replies of one goroutine are sent in order. It waits while the participant does not read, as
// the stream's goroutine does.
func (o *outlet) reply(ctx, life context.Context, r *bridgev1.AttachResponse) {
	if !o.now(r) {
		o.enqueue(ctx, life, r)
	}
}

// now sends a reply if no other frame is before it. If that fails, the stream's goroutine meets the same error.
func (o *outlet) now(r *bridgev1.AttachResponse) bool {
	if o.waiting.Load() > 0 || !o.mu.TryLock() {
		return false
	}
	defer o.mu.Unlock()
	if o.sink == nil {
		return false
	}
	_ = o.sink(frame.Frame{Message: r})
	return true
}

// enqueue leaves a reply to the stream's goroutine. Unlike reply it never waits for the participant to read while
// there is room, and it ends with ctx and with the participation.
func (o *outlet) enqueue(ctx, life context.Context, r *bridgev1.AttachResponse) {
	o.waiting.Add(1)
	select {
	case o.queue <- frame.Frame{Message: r}:
	case <-life.Done():
	case <-ctx.Done():
	}
}

// offer leaves a reply to the stream's goroutine if there is room, for a goroutine that must not wait.
func (o *outlet) offer(r *bridgev1.AttachResponse) bool {
	o.waiting.Add(1)
	select {
	case o.queue <- frame.Frame{Message: r}:
		return true
	default:
		o.waiting.Add(-1)
		return false
	}
}
