package session

import (
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// Names are event.Names.
type Names = event.Names

// ParseEvent is event.Parse.
func ParseEvent(text json.RawMessage) (*journal.Record, error) { return event.Parse(text) }

// Record is event.Record.
func Record(head translate.EventHead, text []byte, names Names) *journal.Record {
	return event.Record(head, text, names)
}
