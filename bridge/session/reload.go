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
func (s *Session) reload(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	err := s.coldResume(ctx, rt, extra, continuePending)
	s.mu.Lock()
	unwritten := s.state == Unloaded && !s.intake.Marks.CompletedTurn
	s.mu.Unlock()
	if !unwritten || fault.ReasonOf(err) != fault.SessionNotFound {
		return err
	}
	s.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	settle := s.reconciler.BeginAnew(ctx)
	// The CLI keeps nothing of a session that it was never sent anything, or had not written.
	if err := s.create(ctx, rt, nil); err != nil {
		return err
	}
	settle()
	return nil
}

// coldResume loads the session from the CLI's history, and brings the journal in step
// with it: what happened before comes before what happens now.
func (s *Session) coldResume(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	s.mu.Lock()
	if err := s.settings.CheckProviders(); err != nil {
		s.mu.Unlock()
		return err
	}
	leftLying := continuePending && s.leavesWork(rt)
	plan := s.participants.Plan()
	plan.Params = plan.Params.Merge(extra)
	if leftLying {
		continuePending = false
		plan.Params.SetBool("continuePendingWork", false)
	}
	s.intake.Hold()
	s.mu.Unlock()
	rt.Route(s)
	result, _, err := s.call(ctx, rt, "session.resume", plan.Params)
	if err == nil {
		err = s.reconciler.History(ctx, inRuntime{s, rt}, continuePending)
	}
	if err != nil {
		rt.Unroute(s)
		s.mu.Lock()
		s.intake.Discard()
		s.mu.Unlock()
		return err
	}
	s.participants.Told(plan, result, s.Past()) // what has come since then comes after the answer
	before := s.callbacks.Registry().List()     // once it is loaded, others may begin turns, which ask anew
	s.loadedIn(rt)
	// Only now: what is asked in these events can be answered in a session that is loaded.
	s.mu.Lock()
	s.intake.Release()
	s.mu.Unlock()
	if err := s.participants.Attend(ctx, rt); err != nil {
		return err
	}
	if err := s.settings.Repeat(ctx, rt); err != nil {
		return err
	}
	if !continuePending {
		outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN
		if leftLying {
			outcome = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST
		}
		s.callbacks.Withdraw(func(p *callback.Pending) bool { return slices.Contains(before, p) }, outcome)
	} else if _, err := s.reconciler.Pending(ctx, inRuntime{s, rt}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Machine().Continue(s.callbacks.Registry().Len() > 0)
	return nil
}

// leavesWork reports whether the CLI takes the answers to what an earlier process asked, and
// does not go on with the turn. The caller holds mu.
func (s *Session) leavesWork(rt Runtime) bool {
	return s.settings.Requires(callback.FSReadFile) && quirks.LeavesWork.In(rt.Version())
}

// Past is the last position of what was history already when the session's caller resumed
// it; what a caller's own program of the CLI would not be told of.
func (s *Session) Past() journal.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.intake.Marks.End
}
