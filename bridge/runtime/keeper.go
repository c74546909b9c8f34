package runtime

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// keeper keeps one profile's runtime. Its goroutine runs while there is one or
// one is to come; a broken profile's keeper only remembers that.
type keeper struct {
	s       *Supervisor
	profile Profile

	// Guarded by Supervisor.mu.
	running  bool
	ctx      context.Context // of starts and pauses
	cancel   context.CancelCauseFunc
	current  *attempt
	demand   bool          // somebody waits for current
	released chan struct{} // closed when the current runtime is let go
	state    State
	failures int
	pauses   backoff.ExponentialBackOff // between failures in a row
	lastErr  error
	retryAt  time.Time
}

// begin prepares a run. It is called with the lock held.
func (k *keeper) begin() {
	k.ctx, k.cancel = context.WithCancelCause(k.s.ctx)
	k.next(StateStarting)
}

// next makes a new attempt the current one. It is called with the lock held.
func (k *keeper) next(state State) {
	k.current, k.demand = &attempt{settled: make(chan struct{})}, false
	k.state = state
}

// broken returns the error of a profile that is not to be started now. It is
// called with the lock held.
func (k *keeper) broken() error {
	wait := time.Until(k.retryAt)
	if k.state != StateBroken || wait <= 0 {
		return nil
	}
	return fault.Wrap(k.lastErr, fault.CLICrashLoop, "the copilot CLI failed %d times in a row, the last time", k.failures).
		WithRetry(wait)
}

// status is called with the lock held.
func (k *keeper) status() Status {
	st := Status{Profile: k.profile, State: k.state, Failures: k.failures, LastError: k.lastErr, RetryAt: k.retryAt}
	if k.state == StateReady {
		st.Runtime = k.current.runtime
	}
	return st
}

// run is the goroutine of the keeper.
func (k *keeper) run() {
	for {
		again := false
		if r, err := k.s.cfg.Start(k.ctx, k.profile); err == nil {
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

// publish hands the runtime to all who wait.
func (k *keeper) publish(r *Runtime) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	k.state, k.lastErr, k.retryAt = StateReady, nil, time.Time{}
	k.released = make(chan struct{})
	k.current.settle(r, nil)
}

// outlive waits for the end of a runtime, or until it is let go, and tells whether to
// start another. Who asks meanwhile waits for that one.
func (k *keeper) outlive(r *Runtime) bool {
	select {
	case <-r.Lost():
	case <-k.released:
		k.s.tasks.Go(func() { k.s.outliveReleased(r) })
		return false
	}
	lived := time.Since(r.Info().StartedAt)
	k.s.mu.Lock()
	if k.state == StateReady {
		k.next(StateStopping)
	}
	k.s.mu.Unlock()

	<-r.Done()
	err := r.Err()
	k.s.mu.Lock()
	again := fault.ReasonOf(err) != fault.RuntimeStopping && k.record(err, lived)
	k.s.mu.Unlock()
	k.s.cfg.OnDown(Down{Runtime: r, Cause: err, Restart: again})
	return again
}

// failed tells all who wait about a failed start, and returns whether to try
// again. Who asks meanwhile waits for that try.
func (k *keeper) failed(err error) bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	tried := k.current
	again := k.ctx.Err() == nil && !lasting(err) && k.record(err, 0)
	if again {
		k.next(StateBackoff)
	}
	tried.settle(nil, err)
	return again
}

// record notes an end after the given life and tells whether to start again. It
// is called with the lock held.
func (k *keeper) record(err error, lived time.Duration) bool {
	if k.ctx.Err() != nil {
		return false
	}
	breaker := k.s.cfg.Breaker
	if lived >= breaker.Stable {
		k.failures = 0
		k.pauses.Reset()
	}
	k.failures++
	k.lastErr = err
	if k.failures >= breaker.Limit {
		k.state, k.retryAt = StateBroken, time.Now().Add(breaker.Cooldown)
		k.s.cfg.Logger.Error("runtime fails again and again, giving up for a while",
			slog.String("profile", k.profile.Hash()), slog.Int("failures", k.failures),
			slog.Duration("cooldown", breaker.Cooldown), slog.Any("error", err))
		return false
	}
	k.state, k.retryAt = StateBackoff, time.Now().Add(k.pauses.NextBackOff())
	return true
}

// pause waits for the time of the next start; false if it is not to be.
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

// finish ends the run, unless somebody has asked for a runtime since it was
// decided not to start one.
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
			err = errRetired // nobody is there to read it
		}
		k.current.settle(nil, err)
	}
	k.running = false
	if k.state != StateBroken {
		delete(k.s.keepers, k.profile.Hash())
	}
	k.cancel(nil)
	return true
}
