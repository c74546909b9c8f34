package bridge

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// stateNames are the states of sessions as figures have them. Sessions that were deleted
// are none any more.
var stateNames = map[session.State]string{
	session.Creating: "creating", session.Loaded: "loaded", session.Unloaded: "unloaded", session.Disconnected: "disconnected",
}

// Figures puts what the bridge counts. It asks each session, and is for those who look now
// and then.
func (b *Bridge) Figures(put observe.Put) {
	b.sessionFigures(put, b.store.Sessions())
	b.fleet.Metrics(put)
	counts := b.budget.Counts()
	put(observe.Events, "", counts.Events)
	put(observe.EventsDropped, "duplicate", counts.Duplicates)
	put(observe.EventsDropped, "trimmed", counts.Trimmed)
	put(observe.EventsDropped, "unwritten", counts.GivenUp)
	put(observe.Gaps, "", counts.Gaps)
	put(observe.JournalMemory, "", b.budget.Used())
}

// sessionFigures puts what sessions are counted for.
func (b *Bridge) sessionFigures(put observe.Put, sessions []*session.Session) {
	states := map[session.State]int64{}
	kinds := map[bridgev1.CallbackKind]int64{}
	var turns, participants, stored, unwritten int64
	for _, s := range sessions {
		states[s.State()]++
		if s.Turns().Running() {
			turns++
		}
		participants += int64(s.Company())
		stored += s.Journal().Stored()
		unwritten += s.Journal().Unwritten()
		for _, p := range s.Callbacks().Registry().List() {
			kinds[p.Kind.Type]++
		}
	}
	for state, name := range stateNames {
		put(observe.Sessions, name, states[state])
	}
	for number, name := range bridgev1.CallbackKind_name { // a figure that is gone is not 0
		if number != 0 {
			put(observe.CallbacksPending, observe.Kind(name), kinds[bridgev1.CallbackKind(number)])
		}
	}
	put(observe.TurnsRunning, "", turns)
	put(observe.Participants, "", participants)
	put(observe.JournalStored, "", stored)
	put(observe.JournalUnwritten, "", unwritten)
}
