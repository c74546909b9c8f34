package session

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/settings"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// RuntimeLost notes that a runtime has ended, and reports whether somebody waits for the
// session, so that it had better be loaded again at once; else it is when needed.
func (l *Loader) RuntimeLost(rt Runtime, cause error) (wanted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runtime != rt || l.state != Loaded {
		return false
	}
	l.cfg.intake.End()
	l.cfg.models.Drop()
	l.cfg.participants.CloseSatellites()
	l.cfg.participants.Unloaded()
	l.state, l.runtime = Unloaded, nil
	l.cfg.sender.RuntimeEnded()
	l.cfg.turns.Machine().Heard(time.Now()) // from now on somebody has to load it
	outcome := l.cfg.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	fleeting := func(p *callback.Pending) bool { return !p.Kind.Survives }
	l.cfg.callbacks.Withdraw(fleeting, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	l.cfg.journal.Note(Restarted{Turn: outcome, Cause: cause.Error()})
	waiting := outcome != nil || !l.cfg.prompts.Box().Empty() || l.cfg.callbacks.Registry().Len() > 0
	return waiting || l.cfg.roster.Len() > 0 || l.cfg.journal.Watched()
}

// Disconnect ends the use of the session, and reports whether it did: without force it
// does not while participants are attached.
func (l *Loader) Disconnect(ctx context.Context, force bool) (bool, error) {
	return l.disconnect(ctx, func(*roster.Participant) bool { return !force })
}

// DisconnectWith is Disconnect for a participant that is about to leave, and keeps its place
// until the CLI has let go of the session: the CLI may ask it something yet.
func (l *Loader) DisconnectWith(ctx context.Context, leaving *roster.Participant) (bool, error) {
	return l.disconnect(ctx, func(p *roster.Participant) bool { return p != leaving })
}

// disconnect ends the use of the session unless a participant is in the way.
func (l *Loader) disconnect(ctx context.Context, inTheWay func(*roster.Participant) bool) (bool, error) {
	if err := l.acquire(ctx); err != nil {
		return false, err
	}
	defer l.release()
	l.mu.Lock()
	state, rt := l.state, l.runtime
	attached := l.cfg.roster.Any(inTheWay)
	l.mu.Unlock()
	switch {
	case attached:
		return false, nil
	case state == Disconnected: // by another who left at the same time
		return true, nil
	}
	if state == Loaded {
		l.cfg.participants.LeaveSatellites(ctx)
		_, _, err := l.cfg.calls.call(ctx, rt, "session.destroy", nil)
		if reason := fault.ReasonOf(err); err != nil && reason != fault.SessionNotFound && reason != fault.RuntimeLost {
			return false, err
		}
	}
	if state != Deleted {
		l.cfg.audit.did(ctx, "session.disconnect", nil)
		l.end(Disconnected, bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED)
		l.cfg.changed(bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED)
	}
	return true, nil
}

// Delete deletes the session for good.
func (l *Loader) Delete(ctx context.Context) (err error) {
	defer func() { l.cfg.audit.did(ctx, "session.delete", err) }()
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer l.release()
	if err := l.usable(); err != nil {
		return err
	}
	rt, err := l.cfg.newRuntime(ctx)
	if err != nil {
		return err
	}
	result, _, err := l.cfg.calls.call(ctx, rt, "session.delete", nil)
	if err != nil {
		return err
	}
	l.mu.Lock()
	written := l.cfg.intake.Marks.HasHistory
	l.mu.Unlock()
	if err := settings.Refused(result, "session.delete"); err != nil && written {
		return err
	}
	l.end(Deleted, bridgev1.CloseReason_CLOSE_REASON_DELETED)
	l.cfg.changed(bridgev1.SessionChange_SESSION_CHANGE_DELETED)
	return nil
}

// Evict ends what is in memory of a disconnected session, and reports whether it did: not
// while somebody resumes it. The session is not to be used after.
func (l *Loader) Evict() bool {
	select {
	case l.lifecycle <- struct{}{}:
	default:
		return false
	}
	defer l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != Disconnected {
		return false
	}
	l.state = Deleted
	return true
}

// end ends the use of the session for everybody.
func (l *Loader) end(state State, reason bridgev1.CloseReason) {
	defer l.cfg.prompts.Flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runtime != nil {
		l.cfg.unroute(l.runtime)
	}
	l.cfg.intake.End()
	l.cfg.models.Drop()
	l.cfg.participants.CloseSatellites()
	l.cfg.participants.Unloaded()
	l.state, l.runtime = state, nil
	l.cfg.sender.RuntimeEnded()
	l.cfg.roster.Clear()
	l.cfg.tx.Keep()
	l.cfg.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_ABORTED)
	l.cfg.prompts.Clear()
	every := func(*callback.Pending) bool { return true }
	l.cfg.callbacks.Withdraw(every, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED)
	l.cfg.journal.Note(Ended{reason})
}
