package history

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// LeftRunning reports whether the last turn in a recovered journal has no end there, and where
// that turn showed that it ran. recovered returns the sequence number of the last event of a
// type, 0 if there is none; get returns the event with a number.
func LeftRunning(recovered func(eventType string) uint64, get func(seq uint64) (*journal.Record, bool)) (begun uint64, running bool) {
	begun = max(recovered("user.message"), recovered("assistant.turn_start"))
	if begun == 0 || recovered("session.idle") > begun {
		return begun, false
	}
	failed := recovered("session.error")
	if failed < begun {
		return begun, true
	}
	rec, ok := get(failed)
	var d struct{ ErrorType string }
	return begun, ok && event.Data(rec, &d) && d.ErrorType == turn.LoggedError
}
