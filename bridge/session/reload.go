package session

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
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
	found := s.prompts.LookUp(ctx, nil, nil)
	s.begunAnew(ctx)
	return s.recreate(ctx, rt, found)
}

// recreate makes the session anew under its id: the CLI keeps nothing of one that it was
// never sent anything, or had not come to write down.
func (s *Session) recreate(ctx context.Context, rt Runtime, found prompts.Settlement) error {
	if err := s.create(ctx, rt, nil); err != nil {
		return err
	}
	s.mu.Lock()
	s.turns.Confirm()
	s.prompts.Settle(locked{s}, found)
	s.mu.Unlock()
	s.prompts.Flush()
	return nil
}

// coldResume loads the session from the CLI's history, and brings the journal in step
// with it: what happened before comes before what happens now.
func (s *Session) coldResume(ctx context.Context, rt Runtime, extra jsonobj.Object, continuePending bool) error {
	if err := s.checkProviders(); err != nil {
		return err
	}
	leftLying := continuePending && s.leavesWork(rt)
	s.mu.Lock()
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
		err = s.readHistory(ctx, rt, continuePending)
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
	if err := s.restore(ctx, rt); err != nil {
		return err
	}
	if !continuePending {
		outcome := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN
		if leftLying {
			outcome = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST
		}
		s.callbacks.Withdraw(func(p *callback.Pending) bool { return slices.Contains(before, p) }, outcome)
	} else if _, err := s.reconcilePending(ctx, rt); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns.Machine().Continue(s.callbacks.Registry().Len() > 0)
	return nil
}

// leavesWork reports whether the CLI takes the answers to what an earlier process asked, and
// does not go on with the turn.
func (s *Session) leavesWork(rt Runtime) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.needs, callback.FSReadFile) && quirks.LeavesWork.In(rt.Version())
}

// readHistory puts what the CLI kept into the journal, where it is missing, and with
// continuePending takes up what has not been answered.
func (s *Session) readHistory(ctx context.Context, rt Runtime, continuePending bool) error {
	result, _, err := s.call(ctx, rt, "session.getMessages", nil)
	if err != nil {
		return err
	}
	var told struct{ Events []json.RawMessage }
	if err := json.Unmarshal(result, &told); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the history of session %q", s.id)
	}
	records := s.records(told.Events)
	found := s.prompts.LookUp(ctx, records, nil)
	s.reconcile(ctx, records)
	defer s.prompts.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	var open history.Unanswered
	live := history.IDs(s.intake.Held())
	past := 0 // what happens on the bridge's own account, its callers have not seen
	if !s.intake.Internal {
		past = history.Past(records, live)
	}
	for i, rec := range records {
		if live[rec.ID] {
			// It happened since the resume, and comes in its place among what else did.
			if callback.ForEvent(rec.Type) == nil {
				open.Follow(rec)
			}
			continue
		}
		s.intake.Append(rec)
		if i < past {
			s.intake.Marks.End = s.journal.Last()
		}
		open.Follow(rec)
		switch {
		case callback.Ends(rec.Type):
			s.callbacks.Completed(rec)
		case rec.Type == "tool.execution_complete":
			s.toolEnded(rec)
		}
	}
	// Turns of the past are over; the CLI keeps no record of their idle events.
	s.turns.LosePast()
	// What the history has just added belongs to them, and begins no turn that a later life
	// would have to tell the end of.
	s.intake.Marks.TurnEnd = s.journal.Last()
	s.host.Keep(s)
	s.turns.Confirm()
	s.prompts.Settle(locked{s}, found)
	if continuePending {
		for _, rec := range open {
			if k := callback.ForEvent(rec.Type); k.Survives {
				s.callbacks.Requested(locked{s}, k, s.kept(rec))
			}
		}
	}
	return nil
}

// records are a history's events.
func (s *Session) records(events []json.RawMessage) (out []*journal.Record) {
	s.mu.Lock()
	internal := s.intake.Internal
	s.mu.Unlock()
	for _, text := range events {
		if rec, err := event.Parse(text); err == nil {
			rec.Bridge = internal && rec.Type == "session.resume"
			out = append(out, rec)
		}
	}
	return out
}

// Past is the last position of what was history already when the session's caller resumed
// it; what a caller's own program of the CLI would not be told of.
func (s *Session) Past() journal.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.intake.Marks.End
}

// kept gives a record of the history the position that it has in the journal.
func (s *Session) kept(rec *journal.Record) *journal.Record {
	if at, ok := s.journal.Lookup(rec.ID); ok {
		rec.Pos = at
	}
	return rec
}

// toolEnded ends what a tool waited for that has ended in the history: the CLI has given it
// up, and does not always say so of what it had asked. The caller holds mu.
func (s *Session) toolEnded(rec *journal.Record) {
	id := history.CallID(event.Raw(rec))
	s.callbacks.Withdraw(func(p *callback.Pending) bool {
		return id != "" && p.Kind.Survives && history.CallID(p.Params) == id
	}, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
}
