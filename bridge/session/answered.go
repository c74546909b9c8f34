package session

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// AnswerOf finds, in the journal, the event that says that a callback is over.
func (s *Session) AnswerOf(ctx context.Context, id string) (at journal.Position, ok bool) {
	event.Scan(ctx, s.journal, journal.Position{}, func(rec *journal.Record) bool {
		var d struct{ RequestID string }
		if callback.Ends(rec.Type) && event.Data(rec, &d) && d.RequestID == id {
			at, ok = rec.Pos, true
		}
		return !ok
	})
	return at, ok
}
