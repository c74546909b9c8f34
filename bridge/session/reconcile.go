package session

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
)

// reconcile begins a new epoch if the history cannot be tied to the journal. It reports
// whether it did. The gate is held.
func (s *Session) reconcile(ctx context.Context, events []*journal.Record) bool {
	if s.journal.Last().Seq == 0 {
		return false // of a session older than the bridge
	}
	if history.Ordered(events, s.journal.Lookup) && !s.rewritten(ctx, events) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.intake.Marks.ReconciledTo = s.journal.Last()
		return false
	}
	s.restart(ctx, events)
	return true
}

// rewritten reports whether a history that the journal has was cut.
func (s *Session) rewritten(ctx context.Context, events []*journal.Record) bool {
	r := history.NewRewrite(events, s.journal.Lookup)
	s.mu.Lock()
	after := s.intake.Marks.ReconciledTo
	s.mu.Unlock()
	if after.Epoch != s.journal.Last().Epoch {
		after = journal.Position{}
	}
	event.Scan(ctx, s.journal, after, r.Kept)
	return r.Found()
}

// restart begins a new epoch with what the journal and the history have. Events that the
// history does not have stay behind those that they came after.
func (s *Session) restart(ctx context.Context, events []*journal.Record) {
	var all []*journal.Record
	var last uint64
	add := func(rec *journal.Record) bool {
		if rec.Pos.Seq > last && (!rec.Ephemeral || journal.KeptTypes[rec.Type]) {
			all, last = append(all, rec), rec.Pos.Seq
		}
		return true
	}
	event.Scan(ctx, s.journal, journal.Position{}, add)
	epoch := s.host.Epoch()
	s.host.Logger().Warn("history and journal do not agree: the journal begins a new epoch", "session_id", s.id, "epoch", epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal.Each(add) // what has come meanwhile
	merged, fresh := history.Merge(events, all)
	s.journal.Restart(epoch, merged)
	s.intake.Marks.TurnEnd, s.intake.Marks.InterruptedAt = journal.Position{}, journal.Position{}
	s.prompts.Renumber(func(note any, _ journal.Position) journal.Position { return s.journal.Post(note, journal.Position{}) })
	s.intake.Marks.ReconciledTo = s.journal.Last()
	for _, rec := range fresh {
		s.intake.Follow(rec, time.Now())
	}
	s.host.Keep(s)
}

// begunAnew notes that the CLI has begun the session anew under its id: it knows nothing of
// what happened before, which readers are told by a new epoch.
func (s *Session) begunAnew(ctx context.Context) {
	if s.journal.Last().Seq > 0 {
		s.restart(ctx, nil)
	}
}
