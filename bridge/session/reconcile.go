package session

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
)

// Whenever a session is loaded from the CLI's history, the journal is brought in step with
// it. What the CLI wrote and the journal lacks goes to the journal's end, if it is the end
// of the history too. Where the two cannot be tied like that, the journal begins a new
// epoch: readers are told, and read what happened in the history's order.

// rewind is the event that tells that the history was cut by a call.
const rewind = "session.snapshot_rewind"

// reconcile begins a new epoch if the history cannot be tied to the journal. It reports
// whether it did. The gate is held.
func (s *Session) reconcile(ctx context.Context, history []*journal.Record) bool {
	if s.journal.Last().Seq == 0 {
		return false // of a session older than the bridge
	}
	if s.ordered(history) && !s.rewritten(ctx, history) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.marks.reconciledTo = s.journal.Last()
		return false
	}
	s.restart(ctx, history)
	return true
}

// ordered reports whether what the journal lacks of the history comes after all it has.
// That those which both have are in another order is no matter: the CLI writes some later
// than it tells of them (an abort behind the end of the turn that it ended), and the journal
// has them as they happened. Nor is one that was written so late that it stands behind what
// the journal lacks, if it happened before that.
func (s *Session) ordered(history []*journal.Record) bool {
	var newest uint64
	var since int64 // when the first that the journal lacks happened
	lacks := false
	for _, rec := range history {
		at, ok := s.journal.Lookup(rec.ID)
		switch {
		case rec.ID == journal.ID{}:
		case !ok && lacks:
			since = min(since, reorder.Timestamp(rec.JSON))
		case !ok:
			lacks, since = true, reorder.Timestamp(rec.JSON)
		case at.Seq <= newest:
		case lacks && !happenedBefore(rec, since):
			return false
		default:
			newest = at.Seq
		}
	}
	return true
}

// happenedBefore reports whether an event happened before a time, as far as can be told.
func happenedBefore(rec *journal.Record, t int64) bool {
	at := reorder.Timestamp(rec.JSON)
	return at > 0 && at < t
}

// rewritten reports whether a message that the journal has is no longer in the history
// although later ones are: somebody else has cut it. What is missing at the end is another
// matter: the CLI writes late, and a process that is killed takes the last of it along.
func (s *Session) rewritten(ctx context.Context, history []*journal.Record) bool {
	there := map[journal.ID]bool{}
	newest, lacks := uint64(0), false
	for _, rec := range history {
		if !saidByUser(rec) {
			continue
		}
		there[rec.ID] = true
		at, ok := s.journal.Lookup(rec.ID)
		newest, lacks = max(newest, at.Seq), lacks || !ok
	}
	s.mu.Lock()
	after := s.marks.reconciledTo
	s.mu.Unlock()
	if after.Epoch != s.journal.Last().Epoch {
		after = journal.Position{}
	}
	gone := false
	s.each(ctx, after, func(rec *journal.Record) bool {
		switch {
		case rec.Type == rewind:
			gone = false // readers were told
		case saidByUser(rec) && !there[rec.ID] && (lacks || rec.Pos.Seq < newest):
			gone = true
		}
		return true
	})
	return gone
}

func saidByUser(rec *journal.Record) bool {
	return rec.Type == "user.message" && rec.Agent == "" && rec.ID != journal.ID{}
}

// restart begins a new epoch with what the journal and the history have. Events that the
// history does not have stay behind those that they came after.
func (s *Session) restart(ctx context.Context, history []*journal.Record) {
	var all []*journal.Record
	var last uint64
	add := func(rec *journal.Record) bool {
		if rec.Pos.Seq > last && (!rec.Ephemeral || journal.KeptTypes[rec.Type]) {
			all, last = append(all, rec), rec.Pos.Seq
		}
		return true
	}
	s.each(ctx, journal.Position{}, add)
	epoch := s.host.Epoch()
	s.host.Logger().Warn("history and journal do not agree: the journal begins a new epoch", "session_id", s.id, "epoch", epoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal.Each(add) // what has come meanwhile
	merged, fresh := merge(history, all)
	s.journal.Restart(epoch, merged)
	s.marks.turnEnd, s.marks.interruptedAt = journal.Position{}, journal.Position{}
	s.prompts.Renumber(func(note any, _ journal.Position) journal.Position { return s.journal.Post(note, journal.Position{}) })
	s.marks.reconciledTo = s.journal.Last()
	for _, rec := range fresh {
		if rec.Agent == "" {
			s.observe(rec)
		}
	}
	s.host.Keep(s)
}

// merge puts two records of the same session in one order: that of the history, with what
// only the journal has behind what it came after there. It returns copies, and those that
// only the history has.
func merge(history, kept []*journal.Record) (all, fresh []*journal.Record) {
	own := map[journal.ID]bool{}
	for _, rec := range history {
		own[rec.ID] = rec.ID != journal.ID{}
	}
	behind := map[journal.ID][]*journal.Record{}
	known := map[journal.ID]*journal.Record{}
	var before journal.ID // zero: those at the beginning
	for _, rec := range kept {
		if own[rec.ID] {
			before, known[rec.ID] = rec.ID, rec
			continue
		}
		behind[before] = append(behind[before], rec)
	}
	put := func(recs ...*journal.Record) {
		for _, rec := range recs {
			again := journal.Record{Type: rec.Type, Agent: rec.Agent, ID: rec.ID, JSON: rec.JSON, Ephemeral: rec.Ephemeral, Bridge: rec.Bridge}
			all = append(all, &again)
		}
	}
	put(behind[journal.ID{}]...)
	for _, rec := range history {
		if k := known[rec.ID]; k != nil {
			rec = k
		} else {
			fresh = append(fresh, rec)
		}
		put(rec)
		if rec.ID != (journal.ID{}) {
			put(behind[rec.ID]...)
		}
	}
	return all, fresh
}

// begunAnew notes that the CLI has begun the session anew under its id: it knows nothing of
// what happened before, which readers are told by a new epoch.
func (s *Session) begunAnew(ctx context.Context) {
	if s.journal.Last().Seq > 0 {
		s.restart(ctx, nil)
	}
}
