package bridge

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// stateNames are the states of sessions in metrics. Deleted sessions are not counted.
var stateNames = map[session.State]string{
	session.Creating: "creating", session.Loaded: "loaded", session.Unloaded: "unloaded",
	session.Disconnected: "disconnected",
}

// Metrics reports the metrics of sessions, runtimes and journals. It reads every session: call it every few seconds at
// most.
func (b *Bridge) Metrics(put observe.Put) {
	all := b.store.Sessions()
	sessionMetrics(put, all)
	tenantMetrics(put, all, b.cfg.Observer)
	put(observe.CallbackHandlers, "", int64(b.Callbacks.Handlers()))
	b.fleet.Metrics(put)
	counts := b.budget.Counts()
	put(observe.Events, "", counts.Events)
	put(observe.EventsDropped, "duplicate", counts.Duplicates)
	put(observe.EventsDropped, "trimmed", counts.Trimmed)
	put(observe.EventsDropped, "unwritten", counts.GivenUp)
	put(observe.Gaps, "", counts.Gaps)
	put(observe.JournalMemory, "", b.budget.Used())
}

// sessionMetrics reports the metrics of sessions.
func sessionMetrics(put observe.Put, sessions []*session.Session) {
	states := map[session.State]int64{}
	kinds := map[bridgev1.CallbackKind]int64{}
	var turns, participants, stored, unwritten int64
	for _, s := range sessions {
		states[s.Loader().State()]++
		if s.Turns().Running() {
			turns++
		}
		participants += int64(s.Participants().Count())
		stored += s.Journal().Stored()
		unwritten += s.Journal().Unwritten()
		for _, p := range s.Callbacks().Registry().List() {
			kinds[p.Kind.Type]++
		}
	}
	for state, name := range stateNames {
		put(observe.Sessions, name, states[state])
	}
	for number, name := range bridgev1.CallbackKind_name { // a kind without callbacks is 0, not missing
		if number != 0 {
			put(observe.CallbacksPending, observe.Kind(name), kinds[bridgev1.CallbackKind(number)])
		}
	}
	put(observe.TurnsRunning, "", turns)
	put(observe.Participants, "", participants)
	put(observe.JournalStored, "", stored)
	put(observe.JournalUnwritten, "", unwritten)
}

// tenantMetrics reports the sessions of tenants, if metrics name any. A deleted session is not counted.
func tenantMetrics(put observe.Put, sessions []*session.Session, o *observe.Observer) {
	counts := map[string]int64{}
	for _, s := range sessions {
		label := o.Tenant(s.Tenant())
		if label == "" {
			return
		}
		if _, counted := stateNames[s.Loader().State()]; counted {
			counts[label]++
		}
	}
	for label, n := range counts {
		put(observe.TenantSessions, label, n)
	}
}
