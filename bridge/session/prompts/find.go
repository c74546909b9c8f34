package prompts

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// FindMessage looks for the first message with one of some texts after a position.
func (q *Queue) FindMessage(ctx context.Context, after journal.Position, texts ...string) (
	messageID string, at journal.Position, ok bool) {
	event.Scan(ctx, q.cfg.Journal, after, func(rec *journal.Record) bool {
		if ok = rec.Type == "user.message" && rec.Agent == "" && slices.Contains(texts, Content(rec)); ok {
			messageID, at = messageIDOf(rec), rec.Pos
		}
		return !ok
	})
	return messageID, at, ok
}

// Locate returns where a message was taken up, by its id or the one that it has since it was given
// to the CLI again.
func (q *Queue) Locate(ctx context.Context, id string) (at journal.Position, ok bool) {
	now := q.box.MovedTo(id)
	event.Scan(ctx, q.cfg.Journal, journal.Position{}, func(rec *journal.Record) bool {
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
