package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// turns are the turns of the agent, and what the reader has got of them: their events, and the notes of their ends.
type turns struct {
	// fates are the outcomes that the CLI has given each turn. One has two if an abort came between the end of a turn and the rest
	// of the session, so that either is right.
	fates [][]string
	// live are the events that a process of the bridge has received as they happened. All others are of a history. It has no process
	// for those that had come when the reader was told of a gap.
	live map[journal.ID]*life
	// open: an event of a turn has come, and not its end. rests: the session has come to rest since.
	open, rests bool
	// heard: an event has come since the last end. crashes are the processes that had ended then: a load of the next one may go on
	// with the turn, whose end is told again.
	heard   bool
	crashes int
	// calm: the session has come to rest since the last turn, and that was saved.
	calm bool
	// interaction is that of the turn.
	interaction string
	// ends are the outcomes of turns that the reader was told of.
	ends []turn.Outcome
}

// begin notes that the agent begins a turn.
func (t *turns) begin() { t.fates = append(t.fates, nil) }

// end notes an outcome of the agent's last turn.
func (t *turns) end(fate string) {
	if last := len(t.fates) - 1; last >= 0 {
		t.fates[last] = append(t.fates[last], fate)
	}
}

// receives notes that a process of the bridge receives an event. The caller holds the world's lock.
func (t *turns) receives(l *life, id journal.ID) {
	if t.live == nil {
		t.live = map[journal.ID]*life{}
	}
	t.live[id] = l
}

// forget notes that the reader has missed something, or reads it again: events that had come by then, and that it reads behind the
// gap, may have begun turns.
func (t *turns) forget() {
	for id := range t.live {
		t.live[id] = nil
	}
	*t = turns{heard: true, ends: t.ends, fates: t.fates, live: t.live}
}

// turnEvent notes an event that the reader gets. The caller holds the world's lock.
func (w *world) turnEvent(rec *journal.Record) {
	t := &w.turns
	received, came := t.live[rec.ID]
	if rec.Agent != "" {
		return
	}
	t.calm = t.calm && strings.HasPrefix(rec.Type, "session.")
	if received != w.life { // a load has found it: the end of a turn that readers did not know of is told
		t.heard = t.heard || rec.Type == "user.message" || came && received == nil
		if received != nil { // by a process that may have ended before it told the end
			ends := rec.Type == "session.idle" || rec.Type == "session.error" || rec.Type == "user.message" && interactionOf(rec) != t.interaction
			t.open = t.open && !ends
		}
		return
	}
	t.heard = true
	switch rec.Type {
	case "user.message", "assistant.turn_start":
		interaction := interactionOf(rec)
		if t.open && (t.rests || rec.Type == "user.message" && interaction != t.interaction) {
			w.failures = append(w.failures, fmt.Sprintf("the reader gets %s of another turn at %v before the end of the one before", rec.Type, rec.Pos))
		}
		t.open, t.rests, t.interaction = true, false, interaction
	case "session.idle":
		t.rests = true
	}
}

// turnOver notes an end of a turn that the reader is told. The caller holds the world's lock.
func (w *world) turnOver(out turn.Outcome) {
	t := &w.turns
	w.note("the reader is told of the end of a turn: %v at %v", out.Status, out.End)
	if !t.heard && w.crashes == t.crashes && w.disconnects+w.reader.returns+w.owner.losses == 0 {
		w.failures = append(w.failures, fmt.Sprintf("the reader is told of the end of a turn at %v, and no turn has begun", out.End))
	}
	if t.calm && out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		w.failures = append(w.failures, fmt.Sprintf("the reader is told at %v that a turn is lost, and all had ended", out.End))
	}
	w.checkStalled(out)
	if wrong := wrongError(out); wrong != "" {
		w.failures = append(w.failures, wrong)
	}
	t.ends = append(t.ends, out)
	t.open, t.heard, t.crashes = false, false, w.crashes
}

// errorTypes are the errors of turns that end so. A turn that fails has the error of the CLI.
var errorTypes = map[bridgev1.TurnStatus]string{
	bridgev1.TurnStatus_TURN_STATUS_FAILED: "query", bridgev1.TurnStatus_TURN_STATUS_STALLED: "stalled",
	bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST: "runtime_lost",
}

// wrongError says what is wrong with the error of a turn; "" if nothing is.
func wrongError(out turn.Outcome) string {
	err := out.Proto().GetError()
	failed := out.Status == bridgev1.TurnStatus_TURN_STATUS_FAILED
	if err.GetErrorType() != errorTypes[out.Status] || err != nil && err.GetMessage() == "" ||
		failed && (err.GetPosition().GetSeq() != out.End.Seq || err.GetPosition().GetEpoch() != out.End.Epoch) {
		return fmt.Sprintf("a turn that ended at %v as %v has the error %v", out.End, out.Status, err)
	}
	return ""
}

// interactionOf is the interaction of an event.
func interactionOf(rec *journal.Record) string {
	return stored{json: string(rec.JSON)}.data("interactionId")
}

// checkTurns: the reader has got the end of each turn that it has seen, before the next began, and the outcome that a caller was told
// of is that of such an end. If no process has ended, the ends are those of the agent's turns.
func (w *world) checkTurns() {
	t := &w.turns
	if t.open {
		w.fail("the reader is not told of the end of the last turn")
	}
	if w.restarts+w.reader.gaps+w.reader.returns > 0 {
		return
	}
	for n, p := range w.prompts {
		status := p.outcome.Status
		if !p.over || p.crashed || p.err != nil || p.outcome.Err != nil ||
			status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED && status != bridgev1.TurnStatus_TURN_STATUS_FAILED {
			continue
		}
		if !slices.ContainsFunc(t.ends, func(out turn.Outcome) bool { return out.Status == status && out.End == p.outcome.End }) {
			w.fail("P%d has the outcome %v at %v, of which readers are not told", n, status, p.outcome.End)
		}
	}
	if w.crashes+w.disconnects > 0 {
		return
	}
	completed := 0
	for _, out := range t.ends {
		if out.Status == bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			completed++
		}
	}
	if completed != w.completed {
		w.fail("the process is said to have completed %d turns of %d", w.completed, completed)
	}
	if w.watchers.count < len(t.ends)+len(t.fates) {
		w.fail("watchers are told %d times of %d turns that have begun and ended", w.watchers.count, len(t.fates))
	}
	if len(t.ends) != len(t.fates) {
		w.fail("the reader is told of %d ends of turns, and the agent has had %d", len(t.ends), len(t.fates))
		return
	}
	for i, out := range t.ends {
		if told := outcomeOf(out); !slices.Contains(t.fates[i], told) {
			w.fail("the reader is told of the end of turn %d as %s at %v; the CLI says %v", i, told, out.End, t.fates[i])
		}
	}
}
