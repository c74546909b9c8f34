package session

import (
	"context"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// reload loads the session from the CLI's history. If the session has no completed turn and the CLI has no
// history of it, reload creates the session instead: the CLI writes the history with a delay, and writes
// nothing for a session that it never sent a message.
func (l *Loader) reload(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	err := l.coldResume(ctx, rt, extra, continuePending)
	l.s.mu.Lock()
	unwritten := l.state == Unloaded && !l.s.ingester.Known.CompletedTurn
	l.s.mu.Unlock()
	if !unwritten || fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	l.s.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	return l.create(ctx, rt, nil, l.s.reconciler.beginAnew(ctx))
}

// loadedTimeout bounds what a load does after the CLI has loaded the session; that takes some milliseconds.
const loadedTimeout = 2 * time.Minute

// coldResume calls session.resume and reconciles the journal with the CLI's history. The ingester holds new
// events back meanwhile, so that the events of the history precede them in the journal.
func (l *Loader) coldResume(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	l.s.mu.Lock()
	if err := l.s.settings.checkProviders(); err != nil {
		l.s.mu.Unlock()
		return err
	}
	// Some CLI versions accept the answers to callbacks of an earlier process and do not continue the turn.
	leftLying := continuePending && l.s.settings.requires(callback.FSReadFile) && quirks.LeavesWork.In(rt.Version())
	plan := l.s.participants.plan()
	plan.Params = plan.Params.Merge(extra)
	if leftLying {
		continuePending = false
		plan.Params.SetBool("continuePendingWork", false)
	}
	l.s.mu.Unlock()
	if err := rt.Route(l.s); err != nil {
		return err
	}
	l.s.mu.Lock()
	l.s.ingester.hold() // the CLI sends no event of the session before session.resume
	l.s.mu.Unlock()
	result, _, err := l.s.call(ctx, rt, "session.resume", plan.Params)
	var goesOn []string
	if err == nil {
		goesOn, err = l.s.reconciler.history(ctx, rt, continuePending)
	}
	if err != nil {
		rt.Unroute(l.s)
		l.s.mu.Lock()
		if fault.ReasonOf(err) == fault.RuntimeLost {
			l.s.ingester.lose()
		} else {
			l.s.ingester.discard()
		}
		l.s.mu.Unlock()
		return err
	}
	l.s.participants.Received(plan, result, l.HistoryEnd()) // the events since then follow the reply
	before := l.s.callbacks.Registry().List()               // a loaded session can begin turns with new callbacks
	l.loadedIn(rt)
	ctx, cancel := context.WithTimeout(ctx, loadedTimeout)
	defer cancel()
	// The events come after loadedIn: callbacks among them can be answered only in a loaded session.
	l.s.mu.Lock()
	if l.runtime == rt {
		l.s.turns.goOn(len(goesOn) > 0)
		l.s.ingester.release()
	} else { // it has ended meanwhile, and all that follows fails
		l.s.ingester.lose()
	}
	l.s.mu.Unlock()
	if err := l.s.participants.attend(ctx, rt); err != nil {
		return err
	}
	if err := l.s.settings.repeat(ctx, rt); err != nil {
		return err
	}
	if !continuePending {
		outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN
		if leftLying {
			outcome = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST
		}
		l.s.callbacks.Withdraw(func(p *callback.Pending) bool { return slices.Contains(before, p) }, outcome)
		return nil
	}
	_, withdrawn, err := l.s.reconciler.pending(ctx, rt)
	if err != nil {
		return err
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	// A caller can run a command or open a canvas by now, without a turn.
	fresh := func(p *callback.Pending) bool { return !slices.Contains(before, p) && p.Command == "" && !p.Kind.Bound }
	answered := func(id string) bool { return !slices.Contains(withdrawn, id) } // or to be answered
	switch {
	case slices.ContainsFunc(l.s.callbacks.Registry().List(), fresh):
		l.s.turns.goOn(true)
	case !slices.ContainsFunc(goesOn, answered):
		l.s.turns.goOn(false)
	}
	return nil
}

// HistoryEnd returns the position of the last event that was in the CLI's history when a caller last resumed
// the session. A program that runs the CLI itself does not receive events up to this position.
func (l *Loader) HistoryEnd() journal.Position {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.ingester.Known.End
}
