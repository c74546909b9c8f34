package session

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// flushDelay is how long the disk has a prompt after its turn has ended. The next prompt of the session removes it
// earlier, in the write that stores that prompt.
const flushDelay = 100 * time.Millisecond

// minFlushRetry and maxFlushRetry bound the pause after a write that failed. Without another one the disk would have a prompt
// that was aborted for as long as the session is idle, and the next process would send it again.
const (
	minFlushRetry = 250 * time.Millisecond
	maxFlushRetry = 30 * time.Second
)

// flusher writes the outbox after a change that no caller waits for, on goroutines that end with the bridge. It is safe
// for concurrent use.
type flusher struct {
	outbox  *outbox.Outbox
	journal *journal.Journal
	// start runs f on a goroutine that ends with the bridge; nil writes nothing.
	start func(f func(ctx context.Context)) bool
	// flush writes the outbox once, and store until another process that may continue the session would find it.
	flush func()
	store func(ctx context.Context) error
	// pending: a goroutine of soon is about to write the outbox.
	pending atomic.Bool
	// retrying: a goroutine of retry is about to write it.
	retrying atomic.Bool
}

// now writes the outbox once the journal has the events that its change follows from, and then calls done, unless that is
// nil, or another server has the session. It returns false, and does neither, if the bridge has ended.
func (f *flusher) now(done func()) bool {
	return f.start != nil && f.start(func(ctx context.Context) {
		var err error
		if f.journal.AwaitShown(ctx) == nil {
			err = f.store(ctx)
		}
		if done != nil && !errors.Is(err, backend.ErrStale) {
			done()
		}
	})
}

// soon removes prompts whose turns have ended from the disk, after flushDelay and once the journal has the turns. Until
// then they are compared with the history if the process ends, as all others are.
func (f *flusher) soon() {
	if f.start == nil || !f.pending.CompareAndSwap(false, true) {
		return
	}
	f.start(func(ctx context.Context) {
		delay := time.NewTimer(flushDelay)
		defer delay.Stop()
		for more := true; more; delay.Reset(flushDelay) {
			select {
			case <-delay.C:
			case <-ctx.Done(): // Prompts.Close does the rest
			}
			end := f.journal.Appended()
			err := f.journal.AwaitShown(ctx)
			f.pending.Store(false)
			if err != nil || ctx.Err() != nil {
				return
			}
			more = f.outbox.TurnsStored(end) && f.pending.CompareAndSwap(false, true)
			f.flush()
		}
	})
}

// retry writes the outbox again after a write has failed, until one succeeds.
func (f *flusher) retry() {
	if f.start == nil || !f.retrying.CompareAndSwap(false, true) {
		return
	}
	f.start(func(ctx context.Context) {
		pause := minFlushRetry
		delay := time.NewTimer(pause)
		defer delay.Stop()
		for {
			select {
			case <-delay.C:
			case <-ctx.Done():
				return
			}
			f.retrying.Store(false) // from here on a write that fails is retried by itself
			if err := f.outbox.Flush(); err == nil || errors.Is(err, backend.ErrStale) || !f.retrying.CompareAndSwap(false, true) {
				return
			}
			pause = min(2*pause, maxFlushRetry)
			delay.Reset(pause)
		}
	})
}
