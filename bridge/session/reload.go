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

// reload loads the session from the CLI's history. The CLI writes that a little late: of
// a session whose runtime was lost in its first turn it may have nothing, and the session
// begins anew.
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
	// The CLI keeps nothing of a session that it was never sent anything, or had not written.
	if err := l.create(ctx, rt, nil); err != nil {
		return err
	}
	settle()
	return nil
}

// coldResume loads the session from the CLI's history, and brings the journal in step
// with it: what happened before comes before what happens now.
func (l *Loader) coldResume(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	l.mu.Lock()
	if err := l.cfg.settings.CheckProviders(); err != nil {
		l.mu.Unlock()
		return err
	}
	// Some CLIs take the answers to callbacks of an earlier process, and do not continue the turn.
	leftLying := continuePending && l.cfg.settings.Requires(callback.FSReadFile) && quirks.LeavesWork.In(rt.Version())
	plan := l.cfg.participants.Plan()
	plan.Params = plan.Params.Merge(extra)
	if leftLying {
		continuePending = false
		plan.Params.SetBool("continuePendingWork", false)
	}
	l.cfg.intake.Hold()
	l.mu.Unlock()
	l.cfg.route(rt)
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
	l.cfg.participants.Told(plan, result, l.HistoryEnd()) // what has come since then comes after the answer
	before := l.cfg.callbacks.Registry().List()           // once it is loaded, others may begin turns, which ask anew
	l.loadedIn(rt)
	// Only now: what is asked in these events can be answered in a session that is loaded.
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

// HistoryEnd is the last position of what was history already when the session's caller resumed
// it; what a caller's own program of the CLI would not be told of.
func (l *Loader) HistoryEnd() journal.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg.intake.Marks.End
}
