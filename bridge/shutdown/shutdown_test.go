package shutdown

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestPhases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New()
		want := func(phase string, draining, stopping, done bool) {
			t.Helper()
			synctest.Wait()
			if closed(c.Draining()) != draining || closed(c.Stopped().Done()) != stopping || closed(c.Done()) != done {
				t.Errorf("%s: draining %v, stopping %v, done %v", phase, !draining, !stopping, !done)
			}
			if got := fault.ReasonOf(c.Accepting()) == fault.Draining; got != draining {
				t.Errorf("%s: accepting %v", phase, c.Accepting())
			}
			if (c.Stopped().Err() != nil) != stopping {
				t.Errorf("%s: the context says %v", phase, c.Stopped().Err())
			}
		}
		want("serving", false, false, false)
		c.Drain(time.Minute)
		c.Drain(time.Second) // the first call counts
		want("draining", true, false, false)
		if c.Grace() != time.Minute {
			t.Errorf("the grace is %v", c.Grace())
		}
		time.Sleep(time.Minute - time.Nanosecond)
		want("draining still", true, false, false)
		time.Sleep(time.Nanosecond)
		want("stopping", true, true, false)
		c.Close()
		want("closed", true, true, true)
	})
}

func TestCloseJoinsTasks(t *testing.T) {
	t.Parallel()
	c := New()
	ended := false
	c.Go(func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	c.Drain(time.Hour)
	c.Close()
	if !ended || !closed(c.Stopped().Done()) {
		t.Error("Close returned before its tasks ended")
	}
	c.Go(func(context.Context) { t.Error("a task starts after Close") })
}

// Tasks one after the other share a goroutine, and Close ends it.
func TestGoroutinesAreReused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New()
		defer c.Close()
		ran := 0
		for range 3 {
			c.Spawn(func() { ran++ })
			synctest.Wait()
			c.Go(func(context.Context) { ran++ })
			synctest.Wait()
		}
		if ran != 6 || len(c.idle) != 1 {
			t.Errorf("%d tasks ran, %d goroutines wait", ran, len(c.idle))
		}
		hold := make(chan struct{})
		for range 2 * maxIdle {
			c.Spawn(func() { <-hold })
		}
		close(hold)
		synctest.Wait()
		if len(c.idle) != maxIdle {
			t.Errorf("%d goroutines wait, want %d", len(c.idle), maxIdle)
		}
	})
}

// A task that hangs does not keep Close waiting, and tasks run after Close.
func TestCloseDoesNotJoinSpawned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New()
		hold, ran := make(chan struct{}), 0
		c.Spawn(func() { <-hold; ran++ })
		c.Close()
		c.Spawn(func() { ran++ })
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if ran != 2 {
			t.Errorf("%d of 2 tasks ran", ran)
		}
	})
}
