package participants

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// Joining is how a caller becomes a participant.
type Joining struct {
	roster.Brings
	// Token is the token of the participant's old place; empty for a new one.
	Token string
	// Reclaim reports that the bridge has the token from an earlier request with the same id. Only the same
	// caller may use it.
	Reclaim bool
	// OnPlaced, if set, is called as soon as the participant is in the roster, before any call to the CLI. It
	// must not call the session.
	OnPlaced func(Joined)
}

// Joined is the place of a participant.
type Joined struct {
	Participant *roster.Participant
	// Returned says that it was its place before.
	Returned bool

	before roster.Brings // of a participant that returned
	stream int           // the participant's stream
}
