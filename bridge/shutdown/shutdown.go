// Package shutdown coordinates the end of a bridge: it serves, drains, stops, and is closed. It
// also runs the bridge's background tasks, which end with it.
//
// A Coordinator owns its task goroutines: Close cancels their context and joins the tasks of Go. It keeps some
// goroutines between tasks, which end with Close. Its mutex guards only closed, so that Go can be called with any other
// lock held.
package shutdown

import (
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

const (
	// retryAfter is when callers that are refused during a drain try another server.
	retryAfter = time.Second
	// maxIdle bounds the goroutines that wait for a task. Their stacks have grown already: to grow that of a new
	// goroutine takes several microseconds.
	maxIdle = 8
)

// Coordinator is the state of one bridge. Call New to make one. It is safe for concurrent use.
type Coordinator struct {
	// ctx ends in Close, stopped when streams are to end.
	ctx, stopped context.Context
	cancel, stop context.CancelFunc
	tasks        sync.WaitGroup
	// next is unbuffered: only the goroutines between two tasks receive from it. idle has an element for each of them.
	next chan func()
	idle chan struct{}

	draining  chan struct{}
	drainOnce sync.Once
	grace     time.Duration // set before draining closes

	mu     sync.Mutex
	closed bool
}

// New returns a Coordinator in the serving phase. The caller must Close it.
func New() *Coordinator {
	c := &Coordinator{
		draining: make(chan struct{}),
		next:     make(chan func()), idle: make(chan struct{}, maxIdle),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.stopped, c.stop = context.WithCancel(c.ctx)
	return c
}

// Go runs f in the background until Close, which joins it. After Close it does nothing and returns false.
func (c *Coordinator) Go(f func(ctx context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Add(1)
	c.Spawn(func() {
		defer c.tasks.Done()
		f(c.ctx)
	})
	return true
}

// Spawn runs f in the background. Close does not wait for it: f may hang in a call of the disk.
func (c *Coordinator) Spawn(f func()) {
	select {
	case c.next <- f:
	default:
		go c.run(f)
	}
}

// run runs a task and those that follow, until there are enough idle goroutines or Close ends them.
func (c *Coordinator) run(f func()) {
	for {
		f()
		select {
		case c.idle <- struct{}{}:
		default:
			return
		}
		select {
		case f = <-c.next:
			<-c.idle
		case <-c.ctx.Done():
			return
		}
	}
}

// Drain asks every stream to go away, and ends the remaining ones after grace.
func (c *Coordinator) Drain(grace time.Duration) {
	c.drainOnce.Do(func() {
		c.grace = grace
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
	c.cancel()
	c.tasks.Wait()
}

// Draining closes when streams must send GoAway.
func (c *Coordinator) Draining() <-chan struct{} { return c.draining }

// Grace is the time from Draining to Stopped. Call it only after Draining has closed.
func (c *Coordinator) Grace() time.Duration { return c.grace }

// Stopped is a context that ends when streams are to end.
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
