package session

import (
	"context"
	"errors"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// fates is what is known of the prompts once the history was read.
type fates struct {
	entries   []outbox.Entry
	decisions []outbox.Decision
	outcomes  []turn.Outcome // of the turns of the prompts in the journal
	// unread is why the history could not be read; nil if it could.
	unread error
	// finished: the history ends behind a turn, so that there is nothing to continue.
	finished bool
}

// forgot reports whether the CLI took a prompt up and has lost it: its history does not show the last turn.
func (s fates) forgot() bool {
	return slices.ContainsFunc(s.decisions, func(d outbox.Decision) bool { return d.Verdict == outbox.Forgotten })
}

// begin reports whether the history has the turn of a prompt that readers do not know of.
func (s fates) begin() bool {
	for i := range s.entries {
		if begins(&s.entries[i], s.decisions[i]) {
			return true
		}
	}
	return false
}

// begins is fates.begin for one prompt. applyOne tells the end of its turn.
func begins(e *outbox.Entry, d outbox.Decision) bool {
	return (d.Verdict == outbox.Taken || d.Verdict == outbox.Partly) && d.At.Seq == 0 && !e.Ended
}

// lookUp compares the prompts with the history, or notes why that could not be read. It comes
// before the journal takes the history up, and apply after.
func (q *Prompts) lookUp(ctx context.Context, history []*journal.Record, unread error) fates {
	entries := q.outbox.Entries()
	if len(entries) == 0 {
		return fates{}
	}
	decisions := outbox.Decide(entries, q.said(ctx, history, entries))
	found := fates{entries: entries, decisions: decisions, outcomes: make([]turn.Outcome, len(entries)), unread: unread}
	for i, d := range found.decisions {
		if d.At.Seq > 0 {
			found.outcomes[i] = q.s.turns.OutcomeOf(ctx, d.At)
		}
	}
	return found
}

// said returns the user's messages in a history, the messages that only the journal has since the first
// prompt, and the aborts since then.
func (q *Prompts) said(ctx context.Context, history []*journal.Record, entries []outbox.Entry) (out []outbox.Said) {
	there := map[journal.ID]bool{}
	for _, rec := range history {
		at, known := q.s.journal.Lookup(rec.ID)
		switch {
		case rec.Agent != "":
		case rec.Type == "user.message":
			there[rec.ID] = true
			one := saidBy(rec)
			if one.History = true; at.Seq > 0 {
				one.Pos = at
			}
			out = append(out, one)
		case rec.Type == "abort" && !known:
			out = append(out, abortOf(rec))
		}
	}
	var after journal.Position
	if first := entries[0].Before; first.Epoch == q.s.journal.Last().Epoch {
		after = first
	}
	for rec := range event.Since(ctx, q.s.journal, after) {
		switch {
		case rec.Agent != "":
		case rec.Type == "user.message" && !there[rec.ID]:
			one := saidBy(rec)
			one.Pos = rec.Pos
			out = append(out, one)
		case rec.Type == "abort":
			out = append(out, abortOf(rec))
		case rec.Type == "session.idle": // by then the CLI has written them: a call or another program has removed them since
			for i := range out {
				out[i].History = out[i].History || out[i].Pos.Seq > 0 && out[i].Pos.Before(rec.Pos)
			}
		}
	}
	return out
}

// abortOf is an abort.
func abortOf(rec *journal.Record) outbox.Said {
	return outbox.Said{Abort: true, At: saidBy(rec).At, Pos: rec.Pos}
}

// keepOwed notes on disk which prompts are owed, before the bridge aborts a turn that can never end: what that removes is sent
// again.
func (q *Prompts) keepOwed(found fates) {
	for i, e := range found.entries {
		if d := found.decisions[i]; e.Acknowledged() && lostBecause(d.Verdict, nil, e.Obstacle()) == "" &&
			(d.Verdict == outbox.Untaken || d.Verdict == outbox.Partly) {
			q.outbox.Owe(e.N, d.Done)
		}
	}
	q.flush()
}

// confirmLost stores, before senders and readers know it, which messages are lost that the journal has: the next owner of the
// session would give them back to the CLI. It fails if the session has another owner, which decides about all prompts.
// A disk needs nothing of that, since the process that continues there finds what this one has found.
func (q *Prompts) confirmLost(ctx context.Context, found fates) error {
	if !q.s.journal.Remote() {
		return nil
	}
	lost := false
	for i, d := range found.decisions {
		e := &found.entries[i]
		lost = lost || e.Acknowledged() && lostBecause(d.Verdict, found.unread, e.Obstacle()) != ""
		if d.Verdict == outbox.Forgotten && found.unread == nil {
			lost = true
			q.outbox.Forget(lastOf(d.IDs), fault.Name(fault.SendUnconfirmed), forgotten)
		}
	}
	if !lost {
		return nil
	}
	err := storing(ctx, q.outbox.Confirm)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backend.ErrStale):
		return unavailable(err)
	}
	return Classify(ctx.Err(), "")
}

// resolve is apply for callers without the lock.
func (q *Prompts) resolve(ctx context.Context, found fates) {
	if q.confirmLost(ctx, found) != nil {
		return
	}
	q.s.update(func() { q.apply(found) })
	q.flush()
}

// apply does with the prompts what the history says. The caller holds the lock, and flushes after.
func (q *Prompts) apply(found fates) {
	for i := range found.entries {
		e, d := &found.entries[i], found.decisions[i]
		if found.finished && d.Verdict == outbox.Untaken && e.Prompt().Continues > 0 {
			if d.Verdict = outbox.Removed; e.Acknowledged() && q.aborts == 0 {
				q.remove(e, bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
				continue
			}
		} else if e.Owed && found.unread == nil && e.Obstacle() == "" {
			continue // it was decided by an earlier load, and not given to the CLI since
		}
		if d.Verdict == outbox.Forgotten && found.unread != nil {
			d.Verdict = outbox.Taken // as far as can be known
		}
		q.applyOne(e, d, found.outcomes[i], found.unread)
	}
	if q.outbox.Owes() {
		q.redeliver()
	}
}

// applyOne is apply for one prompt.
func (q *Prompts) applyOne(e *outbox.Entry, d outbox.Decision, out turn.Outcome, unread error) {
	w := q.waiters[e.N]
	if begins(e, d) { // readers do not know of its turn yet
		out = turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: q.s.journal.Last()}
		q.s.turns.end(out)
	}
	if !e.Acknowledged() {
		switch {
		case w != nil && (d.Verdict == outbox.Untaken || d.Verdict == outbox.Overtaken): // its sender will know
			q.outbox.Pass(e.N)
		case w != nil && d.Verdict == outbox.Forgotten:
			q.forgotten[e.N] = true
		case w == nil:
			q.outbox.Finish(e.N)
		}
		return
	}
	if d.Verdict == outbox.Taken {
		if again := len(e.Was) > 0 || e.Prompt().Continues > 0; again && len(e.IDs) == 0 { // the reply to the latest delivery was lost
			q.moved(e, d.IDs)
		}
		if q.outbox.End(e.N); unread == nil {
			q.outbox.Finish(e.N)
		}
		if w != nil {
			q.s.turns.carryOut(q.s.turns.machine.Finish(w, out))
		}
		return
	}
	if d.Verdict == outbox.Removed || d.Verdict == outbox.Untaken && e.Prompt().Continues > 0 && q.aborts > 0 {
		q.remove(e, bridgev1.TurnStatus_TURN_STATUS_ABORTED)
		return
	}
	if why := lostBecause(d.Verdict, unread, e.Obstacle()); why != "" {
		q.lose(e, why)
		return
	}
	q.outbox.Owe(e.N, d.Done)
}

// remove ends a prompt that is not to be sent. The caller holds the lock.
func (q *Prompts) remove(e *outbox.Entry, status bridgev1.TurnStatus) {
	q.outbox.Finish(e.N)
	if w := q.waiters[e.N]; w != nil {
		q.s.turns.carryOut(q.s.turns.machine.Finish(w, turn.Outcome{Status: status, End: q.s.journal.Last()}))
	}
}

// forgotten says why a prompt is lost that the CLI took up.
const forgotten = "the CLI ended after it accepted the message and before it stored it; the conversation does not contain it"

// Forgotten returns SEND_UNCONFIRMED for a prompt without a reply that the CLI took up and has lost; nil for any other.
// The session has been loaded since.
func (q *Prompts) Forgotten(n uint64) (err error) {
	q.s.update(func() {
		if q.forgotten[n] {
			err = lostError(nil, forgotten)
		}
	})
	return err
}

// lostBecause says why an acknowledged prompt that the history does not have as a whole cannot
// be sent again; "" if it can.
func lostBecause(v outbox.Verdict, unread error, obstacle string) string {
	switch {
	case v == outbox.Forgotten:
		return forgotten
	case v == outbox.Overtaken:
		return "the CLI ended before it accepted the message, and later accepted another: the order can no longer be kept"
	case unread != nil:
		return "the runtime ended before it confirmed the message, and the history cannot be read: " + unread.Error()
	case obstacle != "":
		return "the runtime ended before it confirmed the message; the history does not contain it, and " + obstacle
	}
	return ""
}

// lose tells readers and the sender that a prompt is not part of the conversation.
func (q *Prompts) lose(e *outbox.Entry, why string) {
	ids := e.Names()
	note := outbox.Note{IDs: ids, Reason: fault.Name(fault.SendUnconfirmed), Text: why}
	if len(ids) > 0 {
		note.At = q.s.journal.Post(q.note(note), journal.Position{})
		q.s.ingester.Known.TurnEnd = note.At
		q.s.markDirty()
		q.outbox.Lose(e.N, note)
	} else { // a continuation that no CLI process has answered, so that readers do not know it
		q.s.host.Logger().Warn(cannotContinue, "session_id", q.s.id, "cause", why)
		q.outbox.Finish(e.N)
	}
	if w := q.waiters[e.N]; w != nil {
		out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: note.At, Err: lostError(ids, why)}
		q.s.turns.carryOut(q.s.turns.machine.Finish(w, out))
	}
}
