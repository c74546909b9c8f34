package session

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The notes that a session puts between its events in the journal, for readers: what the bridge knows and the CLI does not
// say. package stream has a frame for each.

// Requested is the note that a callback waits for an answer.
type Requested struct{ Pending *callback.Pending }

// Size is about how much memory the note keeps.
func (r Requested) Size() int { return len(r.Pending.Params) }

// Resolved is the note that a callback is over.
type Resolved struct {
	ID   string
	Kind *callback.Kind
	// Offered are the participants it was offered to.
	Offered     []string
	Outcome     bridgev1.CallbackOutcome
	Participant string
	By          Answerer
}

// Answerer names the caller that answered a callback, for users. The zero value names none.
type Answerer struct {
	Name, Tenant string
	// Public reports that the name is a participant's, which callers of all tenants may see.
	Public bool
}

// Proto returns the note in the form of the API for callers of a tenant.
func (r Resolved) Proto(tenant string) *bridgev1.CallbackResolved {
	out := &bridgev1.CallbackResolved{
		CallbackId: r.ID, Kind: r.Kind.Type, Outcome: r.Outcome, ParticipantId: r.Participant,
	}
	if r.By.Public || r.By.Tenant == tenant {
		out.AnsweredBy = r.By.Name
	}
	return out
}

// Resent is the note that messages were sent to the CLI again, with their new ids.
type Resent struct{ IDs, As []string }

// TurnOver is the note that a turn has ended.
type TurnOver struct {
	Outcome turn.Outcome
	// IDs are of messages that are not part of the conversation, and Err why; none else.
	IDs []string
	Err error
}

// Continued is the note that the agent was told to continue an interrupted turn, for which time in a row.
type Continued struct {
	MessageID string
	Attempt   int
}

// Ended is the note that the session was disconnected or deleted.
type Ended struct{ Reason bridgev1.CloseReason }

// Restarted is the note that the session's runtime ended. Turn is the outcome of the turn that was running, if
// one was.
type Restarted struct {
	Turn  *turn.Outcome
	Cause string
}
