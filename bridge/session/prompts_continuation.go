package session

import (
	"context"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// MaxContinuations bounds how often in a row the agent is told to continue: the task may be the reason for which each
// process ends.
const MaxContinuations = 3

// continuationText tells the agent to continue. The CLI tells the agent itself which tool calls have no result.
const continuationText = "The process that ran you ended before you finished your last turn. Another one has started. " +
	"Continue the task where you left it. Tool calls without a result may have taken effect or not: " +
	"find out before you repeat one that must not happen twice."

const cannotContinue = "the agent cannot be told to continue an interrupted turn"

// Continue has the agent told to continue the turn that ended with its process, before it receives what is owed. The
// caller has found that the turn is unfinished and that no runtime continues it. Continue does nothing if the agent
// was told, or was told MaxContinuations times in a row. told is how often the history says that: a process of the bridge
// may have ended before it saved the count.
func (q *Prompts) Continue(told int) {
	in := &q.s.ingester.Known.Interruption
	in.Told = max(in.Told, told)
	switch {
	case !in.Last:
	case q.aborts > 0, q.outbox.Continues(): // a caller aborts it; an earlier process stored it
		q.leaveInterrupted()
	case in.Told >= MaxContinuations:
		q.leaveInterrupted()
		q.s.host.Logger().Warn("the agent is not told again to continue: each time its process ended",
			"session_id", q.s.id, "times", in.Told)
	default:
		q.continuing = true
		q.redeliver()
	}
}

// timesTold returns how often in a row the last messages of a history tell the agent to continue.
func timesTold(history []*journal.Record) (n int) {
	for _, rec := range slices.Backward(history) {
		switch {
		case rec.Agent != "" || rec.Type != "user.message":
		case contentOf(rec) != continuationText:
			return n
		default:
			n++
		}
	}
	return n
}

// leaveInterrupted leaves the last turn as it ended: the agent is not told to continue it.
func (q *Prompts) leaveInterrupted() {
	q.continuing = false
	if in := &q.s.ingester.Known.Interruption; in.Last {
		in.Last = false
		q.s.markDirty()
	}
}

// beginAbort notes that a caller aborts, or cuts the history: until endAbort, and for the turn that was interrupted before, the agent is not told
// to continue. The call may wait for a load, or be repeated in the next process, which would get both in any order.
func (q *Prompts) beginAbort(ctx context.Context) {
	q.s.update(func() { q.aborts++ })
	q.abort(ctx, slices.DeleteFunc(q.outbox.Entries(), func(e outbox.Entry) bool { return !e.Owed || e.Prompt().Continues == 0 }), q.awaitStored)
}

// endAbort notes that an abort of a caller has ended.
func (q *Prompts) endAbort() { q.s.update(func() { q.aborts-- }) }

// storeContinuation puts the continuation that Continue has asked for into the outbox, which makes it owed.
func (q *Prompts) storeContinuation() {
	attempt := 0
	q.s.update(func() {
		if q.continuing {
			attempt = q.s.ingester.Known.Interruption.Told + 1
		}
	})
	if attempt == 0 {
		return
	}
	var params jsonobj.Object
	params.SetString("prompt", continuationText)
	p := outbox.Prompt{Params: params.JSON(), AskedAt: time.Now(), Continues: attempt}
	n, err := q.outbox.AddContinuation(p, q.s.journal.Appended())
	if err != nil {
		q.s.host.Logger().Warn(cannotContinue, "session_id", q.s.id, "error", err)
	}
	stored := false
	q.s.update(func() {
		if stored = q.continuing && err == nil; stored {
			q.s.ingester.Known.Interruption.Told = attempt
			q.s.markDirty()
		}
		q.leaveInterrupted()
	})
	if !stored { // a caller has aborted it meanwhile
		q.drop(n)
	}
}

// owesLocked reports whether the CLI is to receive prompts before those that callers send now. The caller holds the lock.
func (q *Prompts) owesLocked() bool { return q.continuing || q.outbox.Owes() }

// owes is owesLocked for callers without the lock.
func (q *Prompts) owes() (owes bool) {
	q.s.update(func() { owes = q.owesLocked() })
	return owes
}
