package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// checkContinuation checks that the bridge may tell the agent to continue: the record of the earlier process ends within a
// turn, and nothing has come before.
func (c *cli) checkContinuation() {
	told := 0
	for _, e := range c.events[:c.inherited] {
		switch {
		case e.said >= 0, strings.Contains(e.json, `"type":"session.idle"`):
			told = 0
		case e.isContinuation():
			told++
		}
	}
	var wrong string
	switch {
	case !c.w.variant.continues():
		wrong = "the session does not ask for that"
	case !unfinished(slices.DeleteFunc(slices.Clone(c.events), func(e stored) bool { return e.unendable })):
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

func (e stored) isMessage() bool { return strings.Contains(e.json, `"type":"user.message"`) }

func (e stored) isContinuation() bool { return e.isMessage() && e.said < 0 }

// forgets reports whether a message that the agent has taken up is not written down. The bridge does not know then whether
// the model was asked, and leaves the turn as it ended.
func (c *cli) forgets() bool { return slices.ContainsFunc(c.events[c.written:], stored.isMessage) }

// unfinished reports whether a record ends within a turn.
func unfinished(events []stored) bool {
	for _, e := range slices.Backward(events) {
		switch {
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
	if w.variant.continues() && unfinished(w.disk.events) && !w.forgotten && w.continuations < session.MaxContinuations {
		w.fail("an interrupted turn is not continued; processes were told %d times in all", w.continuations)
	}
}
