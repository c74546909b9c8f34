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
)

const (
	// DefaultRest is the default of Bounds.Rest; the CLI takes some milliseconds.
	DefaultRest = 30 * time.Second
	// stallTimeout bounds each step of ending a turn that has stalled.
	stallTimeout = 10 * time.Second
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
}

func (b Bounds) withDefaults() Bounds {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&b.Stall, DefaultStall}, {&b.ModelCall, DefaultModelCall}, {&b.Rest, DefaultRest}} {
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

// overdue reports whether a turn runs in which nothing has happened for too long, although
// nothing is outstanding. The caller holds mu.
func (s *Session) overdue(now time.Time) bool {
	t := &s.turn
	if s.state != Loaded || t.stalling || !t.busy() {
		return false
	}
	if s.pending.Len() > 0 || t.tools > 0 && !t.rested && !t.failing {
		t.lastEvent = now
		return false
	}
	return now.Sub(t.lastEvent) >= s.silence()
}

// Watch ends the turn that runs if it has stalled. It is to be called now and then; it
// does not wait for the CLI.
func (s *Session) Watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.overdue(time.Now()) {
		return
	}
	s.turn.stalling = true
	rt, last := s.runtime, s.turn.lastEvent
	s.host.Go(func(ctx context.Context) { s.endStalled(ctx, rt, last) })
}

// endStalled gives up the turn that has been silent since last, unless the CLI says that
// something runs in the background.
func (s *Session) endStalled(ctx context.Context, rt Runtime, last time.Time) {
	working := s.tasksRun(ctx, rt)
	s.mu.Lock()
	goesOn := s.runtime != rt || !s.turn.busy() || s.turn.lastEvent != last
	if working && !goesOn {
		s.turn.lastEvent = time.Now()
	}
	if working || goesOn {
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
