package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// stop is what may have ended the turn that the agent has begun last, so that it is not continued.
type stop struct {
	turns int // that have begun
	// underway are the aborts of callers that have not returned.
	underway int
	// done: one has returned since the turn began. called: one was called, perhaps of a process of the bridge that has ended,
	// or the CLI has carried one out.
	done, called bool
	// forgotten: the process has ended before it wrote something down that matters.
	forgotten bool
	// cuts are how many messages were cut from the history when a process received the message that continues the turn.
	cuts int
	// ends counts the processes that have ended since. Each may have been given the message that continues the turn.
	ends int
}

func (s *stop) begin() (turns int) {
	s.underway++
	s.called = true
	return s.turns
}

func (s *stop) end(turns int, err error) {
	s.underway--
	s.done = s.done || err == nil && turns == s.turns
}

// turn notes that a turn begins. An abort that is under way may still reach it.
func (s *stop) turn() {
	s.turns++
	s.done, s.called, s.forgotten, s.ends = false, s.underway > 0, false, 0
}

// restart notes that the process of the bridge has ended, which had the calls. It need not have stored that the turn is left.
func (s *stop) restart() { s.underway, s.done = 0, false }

// checkContinuation checks that the bridge may tell the agent to continue: the record of the earlier process ends within a
// turn, and nothing has come before.
func (c *cli) checkContinuation() {
	told := 0
	for _, e := range c.events[:c.inherited] {
		switch {
		case e.said >= 0, e.other, strings.Contains(e.json, `"type":"session.idle"`):
			told = 0
		case e.isContinuation():
			told++
		}
	}
	var wrong string
	switch {
	case !c.w.variant.continues():
		wrong = "the session does not ask for that"
	case len(c.w.cuts) > c.w.stop.cuts: // the message was under way
		return
	case !unfinished(slices.DeleteFunc(slices.Clone(c.events), func(e stored) bool { return e.unendable || e.turnless })):
		wrong = "no turn was interrupted"
	case slices.ContainsFunc(c.events[c.inherited:], stored.isMessage), len(c.queue)+len(c.steering) > 0:
		wrong = "it has other messages already"
	case told >= session.MaxContinuations:
		wrong = fmt.Sprintf("it was told %d times", told)
	default:
		return
	}
	c.w.failures = append(c.w.failures, "the agent is told to continue: "+wrong)
}

func (e stored) isMessage() bool {
	return !e.agent && strings.Contains(e.json, `"type":"user.message"`)
}

func (e stored) isContinuation() bool { return e.isMessage() && e.said == continuation && !e.other }

// forgets reports whether a message that the agent has taken up is not written down, or the end of its turn. The bridge does
// not know of the first whether the model was asked, and leaves the turn as it ended. Of the second it may know.
func (c *cli) forgets() bool {
	return slices.ContainsFunc(c.events[c.written:], stored.isMessage) ||
		unfinished(c.events[:c.written]) && !unfinished(c.events)
}

// unfinished reports whether a record ends within a turn.
func unfinished(events []stored) bool {
	for _, e := range slices.Backward(events) {
		switch {
		case e.agent:
		case e.isMessage(), strings.Contains(e.json, `"toolRequests":[{`):
			return true
		case strings.Contains(e.json, `"toolRequests":[]`), strings.Contains(e.json, `"type":"abort"`),
			strings.Contains(e.json, `"type":"session.error"`):
			return false
		}
	}
	return false
}

// checkContinued: a turn that was interrupted and that no process goes on with is continued, unless processes end again and
// again.
func (w *world) checkContinued() {
	if w.variant.continues() && unfinished(w.disk.events) && !w.stop.forgotten && !w.stop.called &&
		w.continuations < session.MaxContinuations && w.stop.ends < outbox.MaxDeliveries {
		w.fail("an interrupted turn is not continued; processes were told %d times in all", w.continuations)
	}
}
