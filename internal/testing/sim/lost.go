package sim

import (
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// losses are the reasons for which a message is not part of the conversation, by a part of the text that says it, and whether a run
// has had it.
var losses = []struct {
	says string
	had  func(w *world, n int) bool
}{
	// A process has taken it up.
	{"before it stored it", func(w *world, n int) bool { return w.prompts[n].began }},
	// One has taken up another that came later.
	{"later accepted another", func(w *world, n int) bool {
		for _, later := range w.prompts[n+1:] {
			if later.began && !later.immediate {
				return true
			}
		}
		return false
	}},
	// It may be the reason for which they end.
	{"each runtime that received it ended", func(w *world, _ int) bool { return w.crashes >= outbox.MaxDeliveries }},
	// A process of the bridge began without the key that it takes to load the session, and then gives up at once.
	{"does not store secrets", func(w *world, _ int) bool { return w.provider.losses > 0 }},
	// The bridge has given up to load it.
	{"the history cannot be read", func(w *world, n int) bool { return w.prompts[n].hung || w.crashes >= reviveTries }},
	// Each try to load it for what is owed has ended its process.
	{"the session cannot be loaded: ", func(w *world, _ int) bool { return w.crashes >= reviveTries }},
	// Who asks when the session cannot be loaded is told that.
	{"cannot be loaded to find out", func(w *world, n int) bool { return w.prompts[n].hung || w.disconnects > 0 || w.crashes > 1 }},
	// The session ends, and the process refuses it, or each process has ended.
	{"cannot be sent again", func(w *world, n int) bool { return w.prompts[n].disconnected || w.crashes >= outbox.MaxDeliveries }},
	// A caller has changed the CLI's queue, in which it may have been.
	{"a later change of the CLI's queue", func(w *world, n int) bool { return w.prompts[n].edited }},
	// The process of the bridge that had them has ended.
	{"does not store its secrets", func(w *world, n int) bool {
		return w.restarts > 0 && (w.prompts[n].form == secret || w.prompts[n].form == own)
	}},
}

// wrongLoss says what is wrong with the reason for which a caller was told that its message is lost; "" if nothing is.
func (w *world) wrongLoss(n int, why error) string {
	for _, l := range losses {
		if strings.Contains(why.Error(), l.says) {
			if l.had(w, n) {
				return ""
			}
			return "it is lost without that reason: " + why.Error()
		}
	}
	return "it is lost for no known reason: " + why.Error()
}
