package session

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Defaults of Bounds.
const (
	DefaultStall     = 10 * time.Minute
	DefaultModelCall = 30 * time.Minute
	// DefaultSend is the default of Bounds.Send; the CLI takes some milliseconds.
	DefaultSend = 4 * time.Minute
)

const (
	// DefaultRest is the default of Bounds.Rest; the CLI takes some milliseconds.
	DefaultRest = 30 * time.Second
	// stallTimeout bounds each step of ending a turn that has stalled.
	stallTimeout = 10 * time.Second
	// bringBackTimeout bounds loading a session for those who wait, the start of a runtime
	// included.
	bringBackTimeout = 2 * time.Minute
)

// Bounds say for how long nothing may happen in a turn before it is given up. Time in
// which a tool runs or a callback waits for its answer does not count.
type Bounds struct {
	// Stall is for the turn as a whole.
	Stall time.Duration
	// ModelCall takes its place while an agent waits for a model.
	ModelCall time.Duration
	// Rest takes its place once the agent has come to rest or has failed: all that is
	// missing then is the event that says so of the session.
	Rest time.Duration
	// Send is for the CLI's answer to a message.
	Send time.Duration
}

func (b Bounds) withDefaults() Bounds {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&b.Stall, DefaultStall}, {&b.ModelCall, DefaultModelCall}, {&b.Rest, DefaultRest}, {&b.Send, DefaultSend}} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	b.Rest, b.ModelCall = min(b.Rest, b.Stall), max(b.ModelCall, b.Stall)
	return b
}

// model follows the calls of models, of sub-agents too.
func (t *turn) model(rec *journal.Record) {
	switch rec.Type {
	case "model.call_start":
		if t.calling == nil {
			t.calling = map[string]struct{}{}
		}
		t.calling[rec.Agent] = struct{}{}
	case "model.call_finished", "assistant.turn_end":
		delete(t.calling, rec.Agent)
	}
}

// silence is how long nothing may happen now. The caller holds mu.
func (s *Session) silence() time.Duration {
	t := &s.turn
	switch {
	case t.rested || t.failing:
		return s.bounds.Rest
	case len(t.calling) > 0:
		return s.bounds.ModelCall
	}
	return s.bounds.Stall
}

// Whoever waits for a turn has somebody who ends that, whatever became of the turn:
//
//   - until the CLI has accepted the message, the call that says it;
//   - in a runtime, the CLI's events, and where they do not come, the watchdog: it takes
//     nothing for granted that it believes to be outstanding, but asks the CLI each time
//     that nothing was heard for the bound, and ends the turn unless the CLI says that
//     something goes on;
//   - out of it, whoever loads the session again, and where nobody does for the bound, the
//     watchdog.

// outstanding reports whether a tool is thought to run, or a callback to wait for its
// answer. The caller holds mu.
func (s *Session) outstanding() bool {
	return s.pending.Len() > 0 || s.turn.toolsRun()
}

// toolsRun reports whether tools of the turn are thought to run: not where all else has
// come to its end.
func (t *turn) toolsRun() bool { return t.tools > 0 && !t.rested && !t.failing }

// overdue reports whether a turn runs of which nothing was heard for too long. The caller
// holds mu.
func (s *Session) overdue(now time.Time) bool {
	t := &s.turn
	if s.state != Loaded || t.stalling || !t.busy() {
		return false
	}
	since := t.lastEvent
	if s.outstanding() {
		t.waited = now
	} else if t.waited.After(since) {
		since = t.waited
	}
	return now.Sub(since) >= s.silence()
}

// deserted reports whether somebody waits for a turn of a session that no runtime has, and
// nobody has loaded it for too long. The caller holds mu.
func (s *Session) deserted(now time.Time) bool {
	t := &s.turn
	return s.state != Loaded && !t.stalling && len(t.waiters) > 0 && now.Sub(t.lastEvent) >= s.bounds.Stall
}

// Watch sees to it that what somebody waits for comes to an end. It is to be called now and
// then; it does not wait for the CLI.
func (s *Session) Watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := time.Now(); {
	case s.overdue(now):
		s.turn.stalling = true
		rt, last := s.runtime, s.turn.lastEvent
		s.host.Go(func(ctx context.Context) { s.endStalled(ctx, rt, last) })
	case s.deserted(now):
		s.turn.stalling = true
		s.host.Go(s.bringBack)
	}
}

// endStalled gives up the turn that has been silent since last, unless the CLI says that
// something goes on.
func (s *Session) endStalled(ctx context.Context, rt Runtime, last time.Time) {
	working := s.goesOn(ctx, rt)
	s.mu.Lock()
	heard := s.runtime != rt || !s.turn.busy() || s.turn.lastEvent != last
	if working && !heard {
		s.turn.lastEvent = time.Now()
	}
	if working || heard {
		s.turn.stalling = false
		s.mu.Unlock()
		return
	}
	if s.turn.rested || s.turn.failing {
		s.turn.rest(s.restOutcome())
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.host.Logger().Warn("turn stalled", "session_id", s.id, "silent_since", last)
	s.abortStalled(ctx, rt)
}

// goesOn asks the CLI whether what is thought to be outstanding in the turn is, and whether
// something runs in the background.
func (s *Session) goesOn(ctx context.Context, rt Runtime) bool {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	// What has been missed is asked again or withdrawn now, and has its own time to show.
	if changed, err := s.compare(ctx, rt); changed && err == nil {
		return true
	}
	s.mu.Lock()
	asking, tools := s.pending.Len() > 0, s.turn.toolsRun()
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

// bringBack loads a session of which somebody waits for a turn, so that its history tells
// what became of that, and ends the waiting where that cannot be.
func (s *Session) bringBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bringBackTimeout)
	defer cancel()
	_, err := s.Loaded(ctx)
	if err == nil || ctx.Err() == nil {
		s.GiveUp(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn.stalling = false
	if err == nil {
		return
	}
	s.host.Logger().Warn("session not loaded for those who wait for its turn", "session_id", s.id, "error", err)
	if s.state != Loaded {
		s.turn.lost(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, s.journal.Last())
	}
}

// restOutcome is the outcome of a turn whose agent has come to rest, as its idle event
// would have told it. The caller holds mu.
func (s *Session) restOutcome() Outcome {
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_COMPLETED, Message: s.turn.message, End: s.journal.Last()}
	if s.turn.aborted {
		out.Status = bridgev1.TurnStatus_TURN_STATUS_ABORTED
	}
	return out
}

// abortStalled has the CLI abort a turn that has stalled, so that the next message is not
// queued behind it for ever. Where that does not bring the session to rest, the session
// is unloaded: the next load has it afresh.
func (s *Session) abortStalled(ctx context.Context, rt Runtime) {
	w := s.newWaiter()
	defer w.Close()
	s.mu.Lock()
	w.accepted, w.begun, w.all = true, true, true
	s.internal = true
	s.mu.Unlock()
	defer s.setInternal(false)
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	_, _, err := s.call(ctx, rt, "session.abort", nil)
	if err == nil {
		select {
		case <-w.done:
			return
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	if s.runtime != rt || !s.turn.stalling {
		s.mu.Unlock()
		return
	}
	s.turn.rest(Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_STALLED, Message: s.turn.message, End: s.journal.Last()})
	s.mu.Unlock()
	s.host.Logger().Warn("stalled turn not aborted, session is loaded afresh", "session_id", s.id, "error", err)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stallTimeout)
	defer cancel()
	if err := s.drop(ctx, rt); err != nil {
		s.host.Logger().Warn("session not unloaded", "session_id", s.id, "error", err)
	}
	s.mu.Lock()
	waited := s.state != Loaded && len(s.turn.waiters) > 0
	s.mu.Unlock()
	if waited { // for a message that came meanwhile
		s.bringBack(context.WithoutCancel(ctx))
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
