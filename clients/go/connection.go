package copilot

import (
	"fmt"
)

// ConnectionState is what happened to a participant's connection.
type ConnectionState int

const (
	// ConnectionBroken: the stream broke. The client reconnects.
	ConnectionBroken ConnectionState = iota + 1
	// ConnectionRestored: the stream is open again, with the same participation.
	ConnectionRestored
	// ParticipantExpired: the grace time was over. The participant has joined anew, and
	// callbacks in between got the server's default answers.
	ParticipantExpired
	// RuntimeRestarted: the session's CLI process ended and was replaced.
	RuntimeRestarted
)

// String is the state in words.
func (s ConnectionState) String() string {
	switch s {
	case ConnectionBroken:
		return "broken"
	case ConnectionRestored:
		return "restored"
	case ParticipantExpired:
		return "participant expired"
	case RuntimeRestarted:
		return "runtime restarted"
	default:
		return fmt.Sprintf("ConnectionState(%d)", int(s))
	}
}

// ConnectionChange is a change of a participant's connection.
type ConnectionChange struct {
	// The new state.
	State ConnectionState
	// ConnectionBroken: the reason.
	Err error
	// RuntimeRestarted: the turn that ended with the process; nil if none was running.
	TurnOutcome *Outcome
}
