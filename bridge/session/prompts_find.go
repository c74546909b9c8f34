package session

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// FindMessage looks for the first message with one of some texts after a position.
func (q *Prompts) FindMessage(ctx context.Context, after journal.Position, texts ...string) (
	messageID string, at journal.Position, ok bool) {
	event.Scan(ctx, q.s.journal, after, func(rec *journal.Record) bool {
		if ok = rec.Type == "user.message" && rec.Agent == "" && slices.Contains(texts, contentOf(rec)); ok {
			messageID, at = messageIDOf(rec), rec.Pos
		}
		return !ok
	})
	return messageID, at, ok
}

// Locate returns the position of a message in the conversation, by its id. If the message was sent to the CLI
// again, Locate finds it by its new id.
func (q *Prompts) Locate(ctx context.Context, id string) (at journal.Position, ok bool) {
	now := q.outbox.MovedTo(id)
	event.Scan(ctx, q.s.journal, journal.Position{}, func(rec *journal.Record) bool {
		if rec.Type != "user.message" || rec.Agent != "" {
			return true
		}
		if of := messageIDOf(rec); of != "" && (of == id || of == now) {
			at, ok = rec.Pos, true
		}
		return true
	})
	return at, ok
}

func messageIDOf(rec *journal.Record) string {
	var d struct{ MessageID string }
	event.Data(rec, &d)
	return d.MessageID
}
