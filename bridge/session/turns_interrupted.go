package session

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// renotify posts the notes that an earlier process of the bridge left about prompts and turns, in
// order, and the one about the turn that its end interrupted. The caller holds the lock.
func (t *Turns) renotify(inUse bool) {
	cut := t.interrupted(inUse)
	marks := &t.s.ingester.Known
	t.s.prompts.renumber(func(note any, at journal.Position) journal.Position {
		if cut != nil && !before(at, marks.InterruptedAt) {
			cut()
			cut = nil
		}
		return t.s.journal.Post(note, at)
	})
	if cut != nil {
		cut()
	}
}

// interrupted finds out, from the journal, whether a turn ran when an earlier process of the bridge
// ended. It returns a function that tells readers of the turn's end; nil if no turn ran. The end of a session's use, which in a
// cluster is stored before readers are told, aborts its turn.
func (t *Turns) interrupted(inUse bool) (tell func()) {
	j, marks := t.s.journal, &t.s.ingester.Known
	epoch := j.Last().Epoch
	begun, running := history.LeftRunning(j.Recovered, func(seq uint64) (*journal.Record, bool) {
		return j.Get(journal.Position{Epoch: epoch, Seq: seq})
	})
	if !running {
		return nil
	}
	ended := marks.TurnEnd.Epoch == epoch && marks.TurnEnd.Seq >= begun
	again := marks.InterruptedAt.Epoch == epoch && (marks.InterruptedAt.Seq > begun || ended)
	if !again && ended {
		return nil // that process told the turn's end
	}
	out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: marks.InterruptedAt}
	if !again {
		marks.InterruptedAt, out.End = journal.Position{}, j.Last()
		marks.Interruption.Last = inUse
		if !inUse {
			out.Status = bridgev1.TurnStatus_TURN_STATUS_ABORTED
		}
	}
	return func() {
		at := j.Post(TurnOver{Outcome: out}, marks.InterruptedAt)
		if out.Lost() {
			marks.InterruptedAt = at
		}
		if marks.TurnEnd.Before(at) { // a load may have added events of the turn behind that
			marks.TurnEnd = at
		}
		t.s.markDirty()
	}
}

// before reports whether a position is known and before another, of which zero is the end.
func before(a, b journal.Position) bool {
	return b == journal.Position{} || a.Before(b)
}
