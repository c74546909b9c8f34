package participants

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// Joining is how a caller becomes a participant.
type Joining struct {
	roster.Brings
	// Token is the token of the participant's old place; empty for a new one.
	Token string
	// Reclaim says that the caller did not bring the token: the bridge remembers it from a
	// request with the same id. The place is given back to the same caller alone.
	Reclaim bool
	// OnPlaced, if set, is called as soon as the participant is in place, before the CLI is told
	// of anything. It must not call the session.
	OnPlaced func(Joined)
}

// Joined is the place of a participant.
type Joined struct {
	Participant *roster.Participant
	// Returned says that it was its place before.
	Returned bool
}
