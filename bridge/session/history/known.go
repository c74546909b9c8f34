package history

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// Known says how far a conversation is known. Positions are zero when nothing is known. Their JSON
// is part of the session's saved form.
type Known struct {
	// HasHistory: it has a message, so that the CLI keeps a history of it.
	HasHistory bool `json:"used,omitempty"`
	// CompletedTurn: a turn has ended, so that the CLI has written that history.
	CompletedTurn bool `json:"turned,omitempty"`
	// Withdrawn: a resume has ended the calls and permissions that were pending, and no turn has begun since. The next
	// process would ask for them again if it were told to continue.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// TurnEnd is the position of the last turn whose end readers know.
	TurnEnd journal.Position `json:"ended"`
	// InterruptedAt is where readers learned of the end of a turn that no event shows.
	InterruptedAt journal.Position `json:"cut"`
	// ReconciledTo is how far the journal was in step with the CLI's history.
	ReconciledTo journal.Position `json:"tied"`
	// ReconciledExtent is that of the history then.
	ReconciledExtent Extent `json:"extent,omitzero"`
	// Interruption is what is to be done about the last turn.
	Interruption turn.Interruption `json:"interruption,omitzero"`
	// End is the last position of the history when a caller resumed the session.
	End journal.Position `json:"-"`
}

// Apply follows an event of the session's own agent.
func (m *Known) Apply(rec *journal.Record) {
	switch rec.Type {
	case "user.message":
		m.HasHistory, m.Withdrawn = true, false
	case "assistant.turn_start":
		m.Withdrawn = false
	case "session.resume":
		m.Withdrawn = m.Withdrawn || Withdraws(rec)
	case "session.idle":
		m.CompletedTurn = m.CompletedTurn || m.HasHistory // an abort of a message that was not taken up ends none
		m.Interruption = turn.Interruption{}
	}
}
