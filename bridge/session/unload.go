package session

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/activity"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Hold keeps the session from being unloaded until release is called: something of it
// is in use that its events do not tell.
func (s *Session) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uses++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.uses--
		s.usedAt = time.Now()
	}
}

// resting reports whether nothing has gone on in the session for some time, as far as
// the bridge knows. The caller holds mu.
func (s *Session) resting(idle time.Duration) bool {
	last := s.usedAt
	if s.turns.Machine().LastEvent().After(last) {
		last = s.turns.Machine().LastEvent()
	}
	return s.settings.CheckProviders() == nil && s.state == Loaded && s.uses == 0 && !s.sender.HeadersReplaced() && !s.participants.HasSatellite() && !s.turns.Machine().Busy() && s.callbacks.Registry().Len() == 0 && time.Since(last) >= idle
}

// Rests is resting for others.
func (s *Session) Rests(idle time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resting(idle)
}

// Internal reports whether the bridge is at work on the session by itself: what the CLI says
// of it then is the bridge's doing.
func (s *Session) Internal() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.intake.Internal
}

// Unload takes the session out of its runtime if nothing has gone on in it for some time,
// and nothing does in the CLI: no task, schedule or shell. It reports whether it did. The
// session stays open, and is loaded again by whatever needs it.
func (s *Session) Unload(ctx context.Context, idle time.Duration) (bool, error) {
	if err := lock(ctx, s.gate); err != nil {
		return false, err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	rt, resting := s.runtime, s.resting(idle)
	s.mu.Unlock()
	if !resting {
		return false, nil
	}
	alive, err := activity.Any(ctx, func(ctx context.Context, method string) (json.RawMessage, error) {
		result, _, err := s.call(ctx, rt, method, nil)
		return result, err
	})
	if err != nil || alive {
		s.mu.Lock()
		s.usedAt = time.Now() // ask again when it has rested as long as this once more
		s.mu.Unlock()
		return false, err
	}
	s.mu.Lock()
	if resting = s.resting(idle) && s.runtime == rt; resting {
		s.state, s.intake.Internal = Unloaded, true // whoever needs it waits for the gate
	}
	s.mu.Unlock()
	if !resting {
		return false, nil
	}
	return true, s.destroy(ctx, rt)
}

// drop is Unload of a session that cannot go on in its runtime, whatever goes on there.
func (s *Session) drop(ctx context.Context, rt Runtime) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	here := s.state == Loaded && s.runtime == rt
	if here {
		s.state, s.intake.Internal = Unloaded, true
		s.callbacks.Withdraw(func(p *callback.Pending) bool { return !p.Kind.Survives }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	}
	s.mu.Unlock()
	if !here {
		return nil
	}
	return s.destroy(ctx, rt)
}

// destroy has the CLI forget the session, which is marked as unloaded. The gate is held.
func (s *Session) destroy(ctx context.Context, rt Runtime) error {
	s.participants.LeaveSatellites(ctx)
	_, _, err := s.call(ctx, rt, "session.destroy", nil)
	rt.Unroute(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intake.End()
	s.models.Drop()
	s.participants.Unloaded()
	s.runtime, s.intake.Internal = nil, false
	s.sender.RuntimeEnded()
	switch fault.ReasonOf(err) {
	case fault.SessionNotFound, fault.RuntimeLost:
		return nil // it is gone anyway
	}
	return err
}

// retried makes a call by f in the runtime that has the session, loading it if need be.
// Should that have lost the session before the call reached it, it is made once more.
func (s *Session) retried(ctx context.Context, f func(rt Runtime) error) error {
	defer s.Hold()()
	rt, err := s.Loaded(ctx)
	if err != nil {
		return err
	}
	if err = f(rt); !s.moved(ctx, rt, err) {
		return err
	}
	if rt, err = s.Loaded(ctx); err != nil {
		return err
	}
	return f(rt)
}

// moved reports whether a call failed because the session is in the runtime no longer: it
// was unloaded at that moment, or the runtime has just ended.
func (s *Session) moved(ctx context.Context, rt Runtime, err error) bool {
	switch {
	case errors.Is(err, rpcconn.ErrNotSent) && fault.ReasonOf(err) == fault.RuntimeLost:
		select {
		case <-rt.Ended():
		case <-ctx.Done():
			return false
		}
	case fault.ReasonOf(err) != fault.SessionNotFound:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runtime != rt && s.usable() == nil
}
