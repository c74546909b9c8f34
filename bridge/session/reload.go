package session

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// reload loads the session from the CLI's history. If the session has no completed turn and the CLI has no
// history of it, reload creates the session instead: the CLI writes the history with a delay, and writes
// nothing for a session that it never sent a message.
func (l *Loader) reload(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	err := l.coldResume(ctx, rt, extra, continuePending)
	l.mu.Lock()
	unwritten := l.state == Unloaded && !l.cfg.intake.Marks.CompletedTurn
	l.mu.Unlock()
	if !unwritten || fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	l.cfg.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	settle := l.cfg.reconciler.BeginAnew(ctx)

	if err := l.create(ctx, rt, nil); err != nil {
		return err
	}
	settle()
	return nil
}

// coldResume calls session.resume and reconciles the journal with the CLI's history. The intake holds new
// events back meanwhile, so that the events of the history precede them in the journal.
func (l *Loader) coldResume(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	l.mu.Lock()
	if err := l.cfg.settings.CheckProviders(); err != nil {
		l.mu.Unlock()
		return err
	}
	// Some CLI versions accept the answers to callbacks of an earlier process and do not continue the turn.
	leftLying := continuePending && l.cfg.settings.Requires(callback.FSReadFile) && quirks.LeavesWork.In(rt.Version())
	plan := l.cfg.participants.Plan()
	plan.Params = plan.Params.Merge(extra)
	if leftLying {
		continuePending = false
		plan.Params.SetBool("continuePendingWork", false)
	}
	l.mu.Unlock()
	if err := l.cfg.route(rt); err != nil {
		return err
	}
	l.mu.Lock()
	l.cfg.intake.Hold() // the CLI sends no event of the session before session.resume
	l.mu.Unlock()
	result, _, err := l.cfg.calls.call(ctx, rt, "session.resume", plan.Params)
	if err == nil {
		err = l.cfg.reconciler.History(ctx, inRuntime{l, rt}, continuePending)
	}
	if err != nil {
		l.cfg.unroute(rt)
		l.mu.Lock()
		l.cfg.intake.Discard()
		l.mu.Unlock()
		return err
	}
	l.cfg.participants.Told(plan, result, l.HistoryEnd()) // the events since then follow the reply
	before := l.cfg.callbacks.Registry().List()           // a loaded session can begin turns with new callbacks
	l.loadedIn(rt)
	// The events come after loadedIn: callbacks among them can be answered only in a loaded session.
	l.mu.Lock()
	l.cfg.intake.Release()
	l.mu.Unlock()
	if err := l.cfg.participants.Attend(ctx, rt); err != nil {
		return err
	}
	if err := l.cfg.settings.Repeat(ctx, rt); err != nil {
		return err
	}
	if !continuePending {
		outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN
		if leftLying {
			outcome = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST
		}
		l.cfg.callbacks.Withdraw(func(p *callback.Pending) bool { return slices.Contains(before, p) }, outcome)
	} else if _, err := l.cfg.reconciler.Pending(ctx, inRuntime{l, rt}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg.turns.Machine().Continue(l.cfg.callbacks.Registry().Len() > 0)
	return nil
}

// HistoryEnd returns the position of the last event that was in the CLI's history when a caller last resumed
// the session. A program that runs the CLI itself does not receive events up to this position.
func (l *Loader) HistoryEnd() journal.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.intake.Marks.End
}
