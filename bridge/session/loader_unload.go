package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Hold prevents Unload until release is called. It covers uses of the session that cause no events.
func (l *Loader) Hold() (release func()) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.uses++
	return l.letGo
}

// letGo ends a Hold.
func (l *Loader) letGo() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.uses--
	l.usedAt = time.Now()
}

// idleFor is Idle with the session's lock held.
func (l *Loader) idleFor(idle time.Duration) bool {
	turn, last := l.s.turns.machine, l.usedAt
	if turn.LastEvent().After(last) {
		last = turn.LastEvent()
	}
	free := l.state == Loaded && l.uses == 0 && l.s.settings.checkProviders() == nil && !l.s.sender.headersReplaced()
	return free && !l.s.roster.HasSatellite() && !turn.Busy() && l.s.callbacks.Registry().Len() == 0 && time.Since(last) >= idle
}

// Idle reports whether the session may be unloaded as far as the bridge knows: it is loaded, it had no event and
// no call for the given time, and it has no turn, pending callback, satellite or replaced headers.
func (l *Loader) Idle(idle time.Duration) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.idleFor(idle)
}

// Internal reports whether the bridge itself is loading, unloading or aborting something in the session. The
// CLI's events of that time are effects of the bridge's work, not of a caller's.
func (l *Loader) Internal() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.ingester.Internal
}

// Unload removes the session from its runtime if it is Idle for the given time and the CLI has no task,
// schedule or shell of it. It reports whether it removed the session. For callers the session stays open;
// the next call that needs a runtime loads it.
func (l *Loader) Unload(ctx context.Context, idle time.Duration) (bool, error) {
	if err := l.lifecycle.acquire(ctx); err != nil {
		return false, err
	}
	defer l.lifecycle.release()
	return l.unload(ctx, idle)
}

// unload is Unload with the lifecycle lock held.
func (l *Loader) unload(ctx context.Context, idle time.Duration) (bool, error) {
	l.s.mu.Lock()
	rt, unused := l.runtime, l.idleFor(idle)
	l.s.mu.Unlock()
	if !unused {
		return false, nil
	}
	if runs, err := l.s.anythingRuns(ctx, rt); err != nil || runs {
		l.s.mu.Lock()
		l.usedAt = time.Now() // ask the CLI again after another idle time
		l.s.mu.Unlock()
		return false, err
	}
	l.s.mu.Lock()
	if unused = l.idleFor(idle) && l.runtime == rt; unused {
		l.state, l.s.ingester.Internal = Unloaded, true // later calls wait for the lifecycle lock
	}
	l.s.mu.Unlock()
	if !unused {
		return false, nil
	}
	return true, l.destroy(ctx, rt)
}

// unloadNow is Unload for a session that is idle now. It fails with SESSION_BUSY for any other. The caller holds the
// lifecycle lock.
func (l *Loader) unloadNow(ctx context.Context) error {
	unloaded, err := l.unload(ctx, 0)
	if err == nil && !unloaded {
		err = fault.New(fault.SessionBusy, "the CLI must load session %q again to clear this field: wait until the session "+
			"has no turn, task, shell, schedule, pending callback and canvas of a participant", l.s.id).
			WithField("update_mask").With("session_id", l.s.id)
	}
	return err
}

// drop removes the session from rt without regard to running work. It is for a session that cannot continue in
// its runtime. If rt no longer has the session, drop does nothing.
func (l *Loader) drop(ctx context.Context, rt Runtime) error {
	if err := l.lifecycle.acquire(ctx); err != nil {
		return err
	}
	defer l.lifecycle.release()
	l.s.mu.Lock()
	here := l.state == Loaded && l.runtime == rt
	if here {
		l.state, l.s.ingester.Internal = Unloaded, true
		l.s.callbacks.Withdraw(func(p *callback.Pending) bool { return !p.Kind.Survives }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	}
	l.s.mu.Unlock()
	if !here {
		return nil
	}
	return l.destroy(ctx, rt)
}

// destroy calls session.destroy and clears the session's state in the runtime. The caller has set the state
// Unloaded and holds the lifecycle lock.
func (l *Loader) destroy(ctx context.Context, rt Runtime) error {
	ctx, cancel := l.lingering(ctx)
	defer cancel()
	l.s.participants.leaveSatellites(ctx)
	_, _, err := l.s.call(ctx, rt, "session.destroy", nil)
	rt.Unroute(l.s)
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.detach(Unloaded)
	l.s.ingester.Internal = false
	l.s.turns.trace.cut()
	switch fault.ReasonOf(err) {
	case fault.SessionNotFound, fault.RuntimeLost:
		return nil // the runtime no longer has the session
	}
	return err
}

// Shutdown calls session.shutdown: the CLI ends the session's work and completes the history. After a shutdown
// the CLI accepts messages for the session and ignores them, and cannot resume it. Shutdown therefore also
// removes the session from the runtime; the next call that needs a runtime loads it. That load does not continue
// the work: the CLI would otherwise ask again what nobody answers any more, and the next prompt would wait for it.
func (l *Loader) Shutdown(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	if err := l.lifecycle.acquire(ctx); err != nil {
		return nil, journal.Position{}, err
	}
	defer l.lifecycle.release()
	l.s.mu.Lock()
	rt, state, err := l.runtime, l.state, l.usable()
	l.s.mu.Unlock()
	if err != nil {
		return nil, journal.Position{}, err
	}
	if state != Loaded { // the next load would go on with what a runtime has left
		l.s.update(func() {
			l.shut = true
			l.endWork()
		})
		l.s.prompts.flush()
		return json.RawMessage(`null`), l.s.journal.Last(), nil
	}
	ctx, cancel := l.lingering(ctx)
	defer cancel()
	result, at, err := l.s.call(ctx, rt, "session.shutdown", params)
	if err != nil {
		return nil, at, err
	}
	l.s.mu.Lock()
	here := l.state == Loaded && l.runtime == rt
	if here {
		l.state, l.shut, l.s.ingester.Internal = Unloaded, true, true // later calls wait for the lifecycle lock
		l.endWork()
	}
	l.s.mu.Unlock()
	if !here {
		return result, at, nil
	}
	l.s.prompts.flush()
	return result, at, l.destroy(ctx, rt)
}
