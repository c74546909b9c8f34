// Package shutdown coordinates the end of a bridge: it serves, drains, stops, and is closed. It
// also runs the bridge's background tasks, which end with it.
//
// A Coordinator owns its task goroutines: Close cancels their context and joins them. Its mutex
// guards only closed, so that Go can be called with any other lock held.
package shutdown

import (
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// retryAfter is when callers that are refused during a drain try another server.
const retryAfter = time.Second

// Coordinator is the state of one bridge. Call New to make one. It is safe for concurrent use.
type Coordinator struct {
	// ctx ends in Close, stopped when streams are to end.
	ctx, stopped context.Context
	cancel, stop context.CancelFunc
	tasks        sync.WaitGroup

	changing   chan struct{}
	changeOnce sync.Once
	draining   chan struct{}
	drainOnce  sync.Once
	grace      time.Duration // set before draining closes

	mu     sync.Mutex
	closed bool
}

// New returns a Coordinator in the serving phase. The caller must Close it.
func New() *Coordinator {
	c := &Coordinator{changing: make(chan struct{}), draining: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.stopped, c.stop = context.WithCancel(c.ctx)
	return c
}

// Go runs f in the background until Close, which joins it. After Close it does nothing.
func (c *Coordinator) Go(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.tasks.Go(func() { f(c.ctx) })
}

// Drain asks every stream to go away, and ends the remaining ones after grace.
func (c *Coordinator) Drain(grace time.Duration) {
	c.drainOnce.Do(func() {
		c.grace = grace
		c.change()
		close(c.draining)
		c.Go(func(ctx context.Context) {
			select {
			case <-time.After(grace):
			case <-ctx.Done():
			}
			c.stop()
		})
	})
}

// Close cancels the context of the background tasks and waits for them.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.change()
	c.cancel()
	c.tasks.Wait()
}

func (c *Coordinator) change() { c.changeOnce.Do(func() { close(c.changing) }) }

// Changing closes when the serving phase ends, just before the first of Draining, Stopping and Done. A goroutine that
// waits for all of them needs to wait for this alone at first: each channel of a select costs a waiting goroutine 96
// bytes.
func (c *Coordinator) Changing() <-chan struct{} { return c.changing }

// Draining closes when streams must send GoAway.
func (c *Coordinator) Draining() <-chan struct{} { return c.draining }

// Grace is the time from Draining to Stopping. Call it only after Draining has closed.
func (c *Coordinator) Grace() time.Duration { return c.grace }

// Stopping closes when streams are to end.
func (c *Coordinator) Stopping() <-chan struct{} { return c.stopped.Done() }

// Stopped is a context that ends with Stopping.
func (c *Coordinator) Stopped() context.Context { return c.stopped }

// Done closes when the background tasks are to end.
func (c *Coordinator) Done() <-chan struct{} { return c.ctx.Done() }

// Accepting returns DRAINING once Drain was called. Calls that begin something new ask it; calls
// that end something, such as answers, do not.
func (c *Coordinator) Accepting() error {
	select {
	case <-c.draining:
		return fault.New(fault.Draining, "the server is draining").WithRetry(retryAfter)
	default:
		return nil
	}
}
