package session

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/activity"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Hold keeps the session from being unloaded until release is called: something of it
// is in use that its events do not tell.
func (l *Loader) Hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uses++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.uses--
		l.usedAt = time.Now()
	}
}

// idleFor is Idle. The caller holds the session's lock.
func (l *Loader) idleFor(idle time.Duration) bool {
	turn, last := l.cfg.turns.Machine(), l.usedAt
	if turn.LastEvent().After(last) {
		last = turn.LastEvent()
	}
	free := l.state == Loaded && l.uses == 0 && l.cfg.settings.CheckProviders() == nil && !l.cfg.sender.HeadersReplaced()
	return free && !l.cfg.roster.HasSatellite() && !turn.Busy() && l.cfg.callbacks.Registry().Len() == 0 && time.Since(last) >= idle
}

// Idle reports whether nothing has gone on in the session for some time, as far as the bridge knows.
func (l *Loader) Idle(idle time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idleFor(idle)
}

// Internal reports whether the bridge is at work on the session by itself: what the CLI says
// of it then is the bridge's doing.
func (l *Loader) Internal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.intake.Internal
}

// Unload takes the session out of its runtime if nothing has gone on in it for some time,
// and nothing does in the CLI: no task, schedule or shell. It reports whether it did. The
// session stays open, and is loaded again by whatever needs it.
func (l *Loader) Unload(ctx context.Context, idle time.Duration) (bool, error) {
	if err := l.acquire(ctx); err != nil {
		return false, err
	}
	defer l.release()
	l.mu.Lock()
	rt, resting := l.runtime, l.idleFor(idle)
	l.mu.Unlock()
	if !resting {
		return false, nil
	}
	alive, err := activity.Any(ctx, func(ctx context.Context, method string) (json.RawMessage, error) {
		result, _, err := l.cfg.calls.call(ctx, rt, method, nil)
		return result, err
	})
	if err != nil || alive {
		l.mu.Lock()
		l.usedAt = time.Now() // ask again when it has rested as long as this once more
		l.mu.Unlock()
		return false, err
	}
	l.mu.Lock()
	if resting = l.idleFor(idle) && l.runtime == rt; resting {
		l.state, l.cfg.intake.Internal = Unloaded, true // whoever needs it waits for the lifecycle lock
	}
	l.mu.Unlock()
	if !resting {
		return false, nil
	}
	return true, l.destroy(ctx, rt)
}

// drop is Unload of a session that cannot go on in its runtime, whatever goes on there.
func (l *Loader) drop(ctx context.Context, rt Runtime) error {
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer l.release()
	l.mu.Lock()
	here := l.state == Loaded && l.runtime == rt
	if here {
		l.state, l.cfg.intake.Internal = Unloaded, true
		l.cfg.callbacks.Withdraw(func(p *callback.Pending) bool { return !p.Kind.Survives }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	}
	l.mu.Unlock()
	if !here {
		return nil
	}
	return l.destroy(ctx, rt)
}

// destroy has the CLI forget the session, which is marked as unloaded. The caller holds the lifecycle lock.
func (l *Loader) destroy(ctx context.Context, rt Runtime) error {
	l.cfg.participants.LeaveSatellites(ctx)
	_, _, err := l.cfg.calls.call(ctx, rt, "session.destroy", nil)
	l.cfg.unroute(rt)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg.intake.End()
	l.cfg.models.Drop()
	l.cfg.participants.Unloaded()
	l.runtime, l.cfg.intake.Internal = nil, false
	l.cfg.sender.RuntimeEnded()
	switch fault.ReasonOf(err) {
	case fault.SessionNotFound, fault.RuntimeLost:
		return nil // it is gone anyway
	}
	return err
}

// Shutdown has the CLI shut the session down: what goes on in it ends, and the history is
// complete. What the CLI keeps of it after that takes messages and does nothing with them,
// and cannot be resumed; so the session leaves the runtime, and is loaded by whatever needs
// it next.
func (l *Loader) Shutdown(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	if err := l.acquire(ctx); err != nil {
		return nil, journal.Position{}, err
	}
	defer l.release()
	l.mu.Lock()
	rt, state, err := l.runtime, l.state, l.usable()
	l.mu.Unlock()
	if err != nil {
		return nil, journal.Position{}, err
	}
	if state != Loaded { // that it left its runtime ended what went on in it
		return json.RawMessage(`null`), l.cfg.journal.Last(), nil
	}
	result, at, err := l.cfg.calls.call(ctx, rt, "session.shutdown", params)
	if err != nil {
		return nil, at, err
	}
	l.mu.Lock()
	here := l.state == Loaded && l.runtime == rt
	if here {
		l.state, l.cfg.intake.Internal = Unloaded, true // whoever needs it waits for the lifecycle lock
		l.cfg.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_ABORTED)
		l.cfg.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED)
	}
	l.mu.Unlock()
	if !here {
		return result, at, nil
	}
	return result, at, l.destroy(ctx, rt)
}
