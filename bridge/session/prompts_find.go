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
	for rec := range event.Since(ctx, q.s.journal, after) {
		if rec.Type == "user.message" && rec.Agent == "" && slices.Contains(texts, contentOf(rec)) {
			return messageIDOf(rec), rec.Pos, true
		}
	}
	return "", at, false
}

// Locate returns the position of a message in the conversation, by its id. If the message was sent to the CLI
// again, Locate finds it by its new id.
func (q *Prompts) Locate(ctx context.Context, id string) (at journal.Position, ok bool) {
	now := q.outbox.MovedTo(id)
	for rec := range event.Since(ctx, q.s.journal, journal.Position{}) {
		if rec.Type != "user.message" || rec.Agent != "" {
			continue
		}
		if of := messageIDOf(rec); of != "" && (of == id || of == now) {
			at, ok = rec.Pos, true
		}
	}
	return at, ok
}

func messageIDOf(rec *journal.Record) string { return event.Text(rec, "messageId") }
