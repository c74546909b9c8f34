package main

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// callTimeout is how long any call may take before it counts as one that never ends. A CLI may be made deaf while it
// starts: then a call takes as long as a start may. Everything else in a schedule is bounded well below.
const callTimeout = 100 * time.Second

// calls makes the calls of a schedule, checks how they end, and remembers the calls that can be repeated.
type calls struct {
	ctx    context.Context // of the schedule
	giveUp context.CancelFunc
	rec    *recorder

	running sync.WaitGroup

	mu    sync.Mutex
	asked []*asking // that can be repeated
}

// start makes a call beside the schedule. Each call has a deadline.
func (c *calls) start(name string, f func(context.Context) error) {
	c.running.Go(func() { _ = c.do(name, f) })
}

// do makes a call and waits for its end.
func (c *calls) do(name string, f func(context.Context) error) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
	defer cancel()
	err := f(ctx)
	reason, code := reasonOf(err), status.Code(err)
	result := "ok"
	if err != nil {
		if result = reason; result == "" {
			result = "transport_" + code.String()
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return err
	case ctx.Err() != nil:
		c.rec.violated("%s did not end within %v", name, callTimeout)
	case result == "INTERNAL":
		c.rec.violated("%s failed with a fault of the bridge: %v", name, err)
	case err != nil && reason == "" && code != codes.Unavailable && code != codes.Canceled:
		c.rec.violated("%s failed without a reason: %v", name, err)
	}
	c.rec.count(name + " " + result)
	c.rec.logf("%s ended after %v: %v", name, time.Since(begin).Round(time.Millisecond), errOrOK(err))
	return err
}

// end waits for all calls to end: each has a deadline, which none should reach. If some do not end, it gives the
// schedule up.
func (c *calls) end() bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.running.Wait()
	}()
	select {
	case <-ended:
		return true
	case <-time.After(2 * callTimeout):
		c.rec.violated("calls do not end, not even at their deadline")
		c.giveUp()
		<-ended
		return false
	}
}

// asking is a call with a request id, and what it has come to so far.
type asking struct {
	name string
	do   func(context.Context, *caller) (string, error)

	mu      sync.Mutex
	results map[string]bool
}

// asking remembers a call that can be repeated.
func (c *calls) asking(name string, do func(context.Context, *caller) (string, error)) *asking {
	a := &asking{name: name, do: do, results: map[string]bool{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, a)
	return a
}

// recent returns one of the last calls that can be repeated, nil if there are none.
func (c *calls) recent(pick uint32) *asking {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.asked)
	if n == 0 {
		return nil
	}
	return c.asked[n-1-int(pick)%min(n, 12)]
}

// ask makes a call that can be repeated. All answers to it must be the same.
func (c *calls) ask(by *caller, a *asking) error {
	return c.do(a.name, func(ctx context.Context) error {
		result, err := a.do(ctx, by)
		if err != nil {
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.results[result] = true
		if len(a.results) > 1 {
			c.rec.violated("%s under one request id was answered in different ways: %v", a.name, a.results)
		}
		return nil
	})
}
