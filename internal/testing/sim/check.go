package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// over reports whether nothing is left to do: each caller knows its outcome, and neither side has work.
func (w *world) over() bool {
	w.mu.Lock()
	for _, p := range w.prompts {
		if !p.over {
			w.mu.Unlock()
			return false
		}
	}
	open, changing := w.openCallbacks(), w.settings.changing || w.invoking
	w.mu.Unlock()
	if w.s.Loader().State() == session.Unloaded && (w.s.Awaited() || w.variant.continues()) {
		return false
	}
	return len(open) == 0 && !changing && w.pending() == 0 && !w.s.Turns().Running() && w.s.Prompts().Outbox().Empty()
}

// check lets everything end, and returns what was wrong with the run.
func (w *world) check() string {
	w.failing(false)
	w.unstall()
	w.mend()
	w.endLost()
	w.restart(0)
	w.restoreLog()
	w.settleLease()
	for range reviveTries { // processes may end meanwhile
		w.open()
		if w.s.Loader().State() != session.Disconnected {
			break
		}
		w.settle(func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.clients.changing
		})
	}
	w.checkErased()
	if w.reader.away {
		w.away()
	}
	w.checkWaiting()
	if !w.settle(w.over) {
		for n, p := range w.prompts {
			if !p.over {
				w.fail("P%d has no outcome; the CLI says %v", n, p.fates)
			}
		}
		w.fail("work is left: running %v, %d prompts in the outbox, %d callbacks", w.s.Turns().Running(),
			len(w.s.Prompts().Outbox().Entries()), w.pending())
	}
	w.checkLeaves()
	for w.step(0) { // the process writes its history
	}
	said := w.history()
	for n, p := range w.prompts {
		wrong := w.wrong(p, said[n])
		if wrong == "" && p.over && p.id != "" && p.outcome.Err != nil {
			wrong = w.wrongLoss(n, p.outcome.Err)
		} else if wrong == "" && p.over && p.id != "" && p.err != nil && fault.ReasonOf(p.err) == fault.SendUnconfirmed {
			wrong = w.wrongLoss(n, p.err)
		}
		if wrong != "" {
			w.fail("P%d: %s; the CLI says %v, its history has it %d times", n, wrong, p.fates, len(said[n]))
		}
	}
	w.checkAsked(said)
	w.checkOrder(said)
	w.checkContinued()
	w.checkCuts()
	w.checkJournal()
	w.checkOutbox()
	w.checkStored()
	w.checkCallbacks()
	w.checkReader()
	w.checkStreamed()
	w.checkHooks()
	w.checkNotes()
	w.checkTurns()
	w.checkRecord()
	w.checkPositions()
	w.checkWatched()
	w.checkConfigured()
	w.checkSettings()
	w.checkDeclared()
	w.save()
	w.checkRefusal()
	w.checkStays()
	return strings.Join(w.failures, "\n")
}

// history returns where the CLI's history has each prompt.
func (w *world) history() map[int][]int {
	said := map[int][]int{}
	for i, e := range w.disk.events {
		if e.said >= 0 {
			said[e.said] = append(said[e.said], i)
		}
	}
	return said
}

// wrong says what is wrong with what a caller was told of its prompt; "" if nothing is.
func (w *world) wrong(p *prompt, said []int) string {
	switch told := outcomeOf(p.outcome); {
	case !p.over:
		return ""
	case len(said) > 1:
		return "the agent got it twice"
	case errors.Is(p.err, errConnection): // it does not know
	case errors.Is(p.err, errUnsent):
		if len(said) > 0 {
			return "it is said not to have been sent, and the conversation has it"
		}
	case errors.Is(p.err, errEnded):
		// The process that ended it may have been killed before it told that.
		if len(said) == 0 && !p.abortable && !p.disconnected && !p.cut && !slices.Contains(p.fates, "ABORTED") {
			return "its turn is said to have ended, and the conversation does not have it"
		}
	case p.lost && fault.ReasonOf(p.err) == fault.SessionUnavailable: // a call that the replica may have begun
	case w.owner.moves > 0 && !w.disturbed() && fault.ReasonOf(p.err) == fault.SessionUnavailable:
		if len(said) > 0 {
			return fmt.Sprint("it came while the session moved, and the conversation has it: ", p.err)
		}
	case w.disturbed() && fault.ReasonOf(p.err) == fault.SessionUnavailable:
		if len(said) > 0 && !errors.Is(p.err, session.ErrUnsettled) {
			return fmt.Sprint("it is refused, and the conversation has it: ", p.err)
		}
	case p.abandoned && errors.Is(p.err, context.Canceled):
		if len(said) > 0 {
			return fmt.Sprint("its caller has gone, and the conversation has it: ", p.err)
		}
	case w.isGone(p.err), w.lacks(p.err): // who asks after a crash is told that it cannot be found out
		if len(said) > 0 && !p.crashed {
			return fmt.Sprint("sending failed, and the conversation has it: ", p.err)
		}
	case p.immediate && fault.ReasonOf(p.err) == fault.SessionBusy && len(said) == 0 && w.variant.provides(): // a turn has its own headers
	case p.err != nil:
		if reason := fault.ReasonOf(p.err); !p.crashed && !p.hung && !p.disconnected || reason != fault.SendUnconfirmed && reason != fault.RuntimeLost {
			return fmt.Sprint("sending failed: ", p.err)
		}
		if len(said) > 0 && !p.disconnected && !errors.Is(p.err, session.ErrUnsettled) && !(p.form == several && p.cut) {
			return fmt.Sprint("sending failed, and the conversation has it: ", p.err)
		}
	case p.outcome.Err != nil:
		if !p.crashed || len(said) > 0 && !(p.form == several && p.cut) || p.settled {
			return fmt.Sprint("it is said to be lost: ", p.outcome.Err)
		}
	case told == "ABORTED" && p.disconnected:
	case told == "STALLED" && (p.withdrawn || p.crashed && w.continuation.withdrawn): // no event says so
	case told == "STALLED" && p.stuck:
	case told == "RUNTIME_LOST":
		if !p.crashed && !(p.disconnected && w.disturbed()) { // the end of its use was not stored, and its runtime had closed it
			return "its runtime is said to be lost"
		}
		// Who asks for a message that was removed, and of which nothing is known any more, is told the same.
		if !p.began && !(w.restarts > 0 && (p.abortable || p.disconnected || p.cut || slices.Contains(p.fates, "ABORTED"))) {
			return "its runtime is said to be lost, and none has taken it up"
		}
		if p.wentOn && w.variant.continues() && w.crashes == 1 && !p.abortable {
			return "its runtime is said to be lost, and the next one went on"
		}
	case w.variant.continues() && p.crashed && (told == "COMPLETED C" || slices.Contains(w.continuation.fates, told)):
	case slices.Contains(p.fates, told) && (p.crashed || p.late || p.fates[len(p.fates)-1] == told):
	case told == "ABORTED" && (p.abortable || p.unended) && (p.crashed || len(p.fates) == 0):
	default:
		return "the caller was told " + told
	}
	return ""
}

// String is the outcome that the caller was told, as the CLI's model has it.
func (p *prompt) String() string { return outcomeOf(p.outcome) }

// outcomeOf is an outcome as the CLI's model has it.
func outcomeOf(out turn.Outcome) string {
	told := strings.TrimPrefix(out.Status.String(), "TURN_STATUS_")
	if out.Status == bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		told += " " + out.Proto().GetText()
	}
	return told
}

// checkOrder: the agent gets a prompt after those that the bridge had accepted when it was sent. A bridge that ends while a caller or an
// abort removes one does not know that.
func (w *world) checkOrder(said map[int][]int) {
	for n, p := range w.prompts {
		for before := range n {
			earlier := w.prompts[before]
			if p.immediate || earlier.immediate || len(said[n]) != 1 || len(said[before]) != 1 || !p.accepted[before] {
				continue
			}
			unknown := earlier.doubtful || earlier.withdrawn && !earlier.removed && w.restarts > 0
			if said[n][0] < said[before][0] && !(unknown && earlier.crashed) {
				w.fail("the agent got P%d before P%d", n, before)
			}
		}
	}
}

// checkOutbox: the disk of the outbox has no prompt whose turn has ended.
func (w *world) checkOutbox() {
	if w.variant == 0 {
		return
	}
	w.mu.Lock()
	w.fuse = fuse{} // a process that ended now would leave what the next one sees to
	w.mu.Unlock()
	w.pass(time.Minute) // a write that failed has been retried
	w.mu.Lock()
	w.checkSecrets(w.life.disks)
	w.mu.Unlock()
	switch box, err := outbox.Open(w.life.disks.clone().outbox); {
	case err != nil:
		w.fail("the outbox cannot be opened: %v", err)
	case !box.Empty():
		w.fail("%d prompts are left on the disk of the outbox", len(box.Entries()))
	}
}

// checkJournal: no event is in the journal twice, and each turn that begins ends before the next.
func (w *world) checkJournal() {
	seen := map[journal.ID]bool{}
	var last journal.Position
	w.s.Journal().Each(func(rec *journal.Record) bool {
		if rec.ID != (journal.ID{}) && seen[rec.ID] {
			w.fail("the journal has an event twice, at %v", rec.Pos)
		}
		if rec.Pos.Seq > 0 && rec.Note == nil && !last.Before(rec.Pos) {
			w.fail("the journal has %v behind %v", rec.Pos, last)
		}
		if rec.Note == nil {
			last = rec.Pos
		}
		seen[rec.ID] = true
		return true
	})
}
