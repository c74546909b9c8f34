package runtime

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
)

// keeper manages the runtime of one profile. Its goroutine runs while there is a runtime or one will be started. The
// keeper of a failing profile only stores the failure.
type keeper struct {
	s       *Supervisor
	profile Profile

	// Guarded by Supervisor.mu.
	running  bool
	ctx      context.Context // of starts and pauses
	cancel   context.CancelCauseFunc
	current  *attempt
	demand   bool          // callers wait for current
	released chan struct{} // closed when the current runtime is released
	state    State
	failures int
	pauses   backoff.ExponentialBackOff // between successive failures
	lastErr  error
	retryAt  time.Time
}

// begin prepares a run. The caller holds the lock.
func (k *keeper) begin() {
	k.ctx, k.cancel = context.WithCancelCause(k.s.ctx)
	k.next(StateStarting)
}

// next makes a new attempt the current one. The caller holds the lock.
func (k *keeper) next(state State) {
	k.current, k.demand = newAttempt(), false
	k.state = state
}

// broken returns the error of a profile that must not be started now. The caller holds the lock.
func (k *keeper) broken() error {
	wait := time.Until(k.retryAt)
	if k.state != StateBroken || wait <= 0 {
		return nil
	}
	return fault.Wrap(k.lastErr, fault.CLICrashLoop, "the copilot CLI failed %d times in a row, the last time",
		k.failures).
		WithRetry(wait)
}

// status returns the profile's status. The caller holds the lock.
func (k *keeper) status() Status {
	st := Status{Profile: k.profile, State: k.state, Failures: k.failures, LastError: k.lastErr, RetryAt: k.retryAt}
	if k.state == StateReady {
		st.Runtime = k.current.runtime
	}
	return st
}

// run is the keeper's goroutine.
func (k *keeper) run() {
	for {
		again := false
		if r, err := k.start(); err == nil {
			k.s.cfg.OnUp(r)
			k.publish(r)
			again = k.outlive(r)
		} else {
			again = k.failed(err)
		}
		if again {
			again = k.pause()
		}
		if !again && k.finish() {
			return
		}
	}
}

// start starts a runtime, and notes the stages of that for the callers who wait.
func (k *keeper) start() (*Runtime, error) {
	k.s.mu.Lock()
	current := k.current
	k.s.mu.Unlock()
	ctx, stop := progress.Watch(k.ctx, current.enter)
	defer stop()
	return k.s.cfg.Start(ctx, k.profile)
}

// publish gives the runtime to all waiting callers.
func (k *keeper) publish(r *Runtime) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.state, k.lastErr, k.retryAt = StateReady, nil, time.Time{}
	k.released = make(chan struct{})
	k.current.end(r, nil)
}

// outlive waits until a runtime ends or is released, and reports whether to start another one. New callers then wait
// for that one.
func (k *keeper) outlive(r *Runtime) bool {
	select {
	case <-r.Lost():
	case <-k.released:
		k.s.tasks.Go(func() { k.s.outliveReleased(r) })
		return false
	}
	stable := time.Since(r.Info().StartedAt) >= k.s.cfg.Breaker.Stable
	k.s.mu.Lock()
	if k.state == StateReady {
		k.next(StateStopping)
	}
	k.s.mu.Unlock()

	<-r.Done()
	err := r.Err()
	k.s.mu.Lock()
	again := fault.ReasonOf(err) != fault.RuntimeStopping && k.record(err, stable || r.proven.Load())
	k.s.mu.Unlock()
	k.s.cfg.OnDown(Down{Runtime: r, Cause: err, Restart: again})
	return again
}

// failed reports a failed start to all waiting callers, and returns whether to try again. New callers wait for that
// attempt.
func (k *keeper) failed(err error) bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	tried := k.current
	again := k.ctx.Err() == nil && !lasting(err) && k.record(err, false)
	if again {
		k.next(StateBackoff)
	}
	tried.end(nil, err)
	return again
}

// record records the end of a runtime, or a failed start, and returns whether to restart. The caller holds the lock.
func (k *keeper) record(err error, stable bool) bool {
	if k.ctx.Err() != nil {
		return false
	}
	breaker := k.s.cfg.Breaker
	if stable {
		k.failures = 0
		k.pauses.Reset()
	}
	k.failures++
	k.lastErr = err
	if k.failures >= breaker.Limit {
		k.state, k.retryAt = StateBroken, time.Now().Add(breaker.Cooldown)
		k.s.cfg.Logger.Error("runtime failed repeatedly, pausing restarts",
			slog.String("profile", k.profile.Hash()), slog.Int("failures", k.failures),
			slog.Duration("cooldown", breaker.Cooldown), slog.Any("error", err))
		return false
	}
	k.state, k.retryAt = StateBackoff, time.Now().Add(k.pauses.NextBackOff())
	return true
}

// pause waits until the time of the next start. It returns false if the keeper was stopped.
func (k *keeper) pause() bool {
	k.s.mu.Lock()
	timer := time.NewTimer(time.Until(k.retryAt))
	k.s.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-k.ctx.Done():
		return false
	}
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.state = StateStarting
	return true
}

// finish ends the run, unless a caller has requested a runtime in the meantime.
func (k *keeper) finish() bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	waited := !isDone(k.current.settled)
	if waited && k.demand && k.state != StateBroken && k.ctx.Err() == nil {
		k.state = StateStarting
		return false
	}
	if waited {
		err := k.broken()
		if err == nil {
			err = context.Cause(k.ctx)
		}
		if err == nil {
			err = errRetired // no caller reads it
		}
		k.current.end(nil, err)
	}
	k.running = false
	if k.state != StateBroken {
		delete(k.s.keepers, k.profile.Hash())
	}
	k.cancel(nil)
	return true
}
