package session

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// stallTimeout bounds each step of ending a turn that has stalled.
	stallTimeout = 10 * time.Second
	// reloadTimeout bounds loading a session for those who wait, the start of a runtime
	// included.
	reloadTimeout = 2 * time.Minute
)

// Whoever waits for a turn has somebody who ends that, whatever became of the turn:
//
//   - until the CLI has accepted the message, the call that says it;
//   - in a runtime, the CLI's events, and where they do not come, the watchdog: it takes
//     nothing for granted that it believes to be outstanding, but asks the CLI each time
//     that nothing was heard for the bound, and ends the turn unless the CLI says that
//     something goes on;
//   - out of it, whoever loads the session again, and where nobody does for the bound, the
//     watchdog.

// Watch ends turns and waits that have made no progress within their time limits. The bridge
// calls it every few seconds; it does not wait for the CLI.
func (s *Session) Watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case s.state == Loaded && s.turns.Machine().Overdue(now, s.callbacks.Registry().Len() > 0):
		s.turns.Machine().SetStalling(true)
		rt, last := s.runtime, s.turns.Machine().LastEvent()
		s.host.Go(func(ctx context.Context) { s.endStalled(ctx, rt, last) })
	case s.state != Loaded && s.turns.Machine().Deserted(now):
		s.turns.Machine().SetStalling(true)
		s.host.Go(s.reloadForWaiters)
	}
}

// endStalled gives up the turn that has been silent since last, unless the CLI says that
// something goes on.
func (s *Session) endStalled(ctx context.Context, rt Runtime, last time.Time) {
	working := s.stillActive(ctx, rt)
	s.mu.Lock()
	heard := s.runtime != rt || !s.turns.Machine().Busy() || s.turns.Machine().LastEvent() != last
	if working && !heard {
		s.turns.Machine().Heard(time.Now())
	}
	if working || heard {
		s.turns.Machine().SetStalling(false)
		s.mu.Unlock()
		return
	}
	if s.turns.Machine().AtRest() {
		s.turns.CarryOut(s.turns.Machine().Rest(s.journal.Last()))
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.host.Logger().Warn("turn stalled", "session_id", s.id, "silent_since", last)
	s.abortStalled(ctx, rt)
}

// stillActive asks the CLI whether what is thought to be outstanding in the turn is, and whether
// something runs in the background.
func (s *Session) stillActive(ctx context.Context, rt Runtime) bool {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	// What has been missed is asked again or withdrawn now, and has its own time to show.
	if changed, err := s.reconcilePending(ctx, rt); changed && err == nil {
		return true
	}
	s.mu.Lock()
	asking, tools := s.callbacks.Registry().Len() > 0, s.turns.Machine().ToolsRun()
	s.mu.Unlock()
	if asking { // each has its deadline
		return true
	}
	if tools {
		activity := activity{HasActiveWork: true} // of a CLI that cannot tell
		if s.query(ctx, rt, "session.metadata.activity", &activity) == nil && activity.HasActiveWork {
			return true
		}
	}
	return s.tasksRun(ctx, rt)
}

// reloadForWaiters loads a session of which somebody waits for a turn, so that its history tells
// what became of that, and ends the waiting where that cannot be.
func (s *Session) reloadForWaiters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	_, err := s.Loaded(ctx)
	if err == nil || ctx.Err() == nil {
		s.GiveUp(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Machine().SetStalling(false)
	if err == nil {
		return
	}
	s.host.Logger().Warn("session not loaded for those who wait for its turn", "session_id", s.id, "error", err)
	if s.state != Loaded {
		s.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	}
}

// abortStalled has the CLI abort a turn that has stalled, so that the next message is not
// queued behind it for ever. Where that does not bring the session to rest, the session
// is unloaded: the next load has it afresh.
func (s *Session) abortStalled(ctx context.Context, rt Runtime) {
	w := s.turns.Expect(nil)
	defer w.Close()
	s.mu.Lock()
	s.turns.Machine().AwaitRest(w.State())
	s.intake.Internal = true
	s.mu.Unlock()
	defer s.setInternal(false)
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	_, _, err := s.call(ctx, rt, "session.abort", nil)
	if err == nil {
		select {
		case <-w.State().Done():
			return
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	if s.runtime != rt || !s.turns.Machine().Stalling() {
		s.mu.Unlock()
		return
	}
	s.turns.CarryOut(s.turns.Machine().GiveUp(s.journal.Last()))
	s.mu.Unlock()
	s.host.Logger().Warn("stalled turn not aborted, session is loaded afresh", "session_id", s.id, "error", err)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stallTimeout)
	defer cancel()
	if err := s.drop(ctx, rt); err != nil {
		s.host.Logger().Warn("session not unloaded", "session_id", s.id, "error", err)
	}
	s.mu.Lock()
	waited := s.state != Loaded && s.turns.Machine().Waiting()
	s.mu.Unlock()
	if waited { // for a message that came meanwhile
		s.reloadForWaiters(context.WithoutCancel(ctx))
	}
}

// tasksRun reports whether background tasks of the session run: agents, or shells that
// the agent began. A CLI that cannot tell has none.
func (s *Session) tasksRun(ctx context.Context, rt Runtime) bool {
	found, err := s.tasksIn(ctx, rt, "running")
	return err == nil && found
}

// tasksIn reports whether background tasks of the session are in one of some states.
func (s *Session) tasksIn(ctx context.Context, rt Runtime, states ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	var list struct{ Tasks []struct{ Status string } }
	if err := s.query(ctx, rt, "session.tasks.list", &list); err != nil {
		return false, err
	}
	for _, t := range list.Tasks {
		if slices.Contains(states, t.Status) {
			return true, nil
		}
	}
	return false, nil
}

// query makes a call that only asks. A CLI that does not have the method says nothing.
func (s *Session) query(ctx context.Context, rt Runtime, method string, into any) error {
	result, _, err := s.call(ctx, rt, method, nil)
	if fault.ReasonOf(err) == fault.MethodUnknown {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s", method)
	}
	return nil
}
