package session

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
)

// findBytes is how much is read at a time to find an event.
const findBytes = 1 << 20

// each calls f for the events that are kept after a position, in order, until f returns
// false. It waits until what has happened by now can be read.
func (s *Session) each(ctx context.Context, after journal.Position, f func(*journal.Record) bool) {
	if s.journal.Settle(ctx) != nil {
		return
	}
	r, err := s.journal.NewReader(after, false, func() {})
	if err != nil {
		return
	}
	defer r.Close()
	for {
		records, gap := r.Next(nil, findBytes)
		if gap == nil && len(records) == 0 {
			return
		}
		for _, rec := range records {
			if rec.Note == nil && !f(rec) {
				return
			}
		}
	}
}

// FindMessage looks for the first message with one of some texts after a position.
func (s *Session) FindMessage(ctx context.Context, after journal.Position, texts ...string) (messageID string, at journal.Position, ok bool) {
	s.each(ctx, after, func(rec *journal.Record) bool {
		if ok = rec.Type == "user.message" && rec.Agent == "" && slices.Contains(texts, prompts.Content(rec)); ok {
			var d struct{ MessageID string }
			event.Data(rec, &d)
			messageID, at = d.MessageID, rec.Pos
		}
		return !ok
	})
	return messageID, at, ok
}

// PlaceOf is where a message was taken up, by its id or the one that it has since it was given
// to the CLI again.
func (s *Session) PlaceOf(ctx context.Context, id string) (at journal.Position, ok bool) {
	now := s.prompts.Box().MovedTo(id)
	s.each(ctx, journal.Position{}, func(rec *journal.Record) bool {
		if rec.Type != "user.message" || rec.Agent != "" {
			return true
		}
		var d struct{ MessageID string }
		if event.Data(rec, &d) && d.MessageID != "" && (d.MessageID == id || d.MessageID == now) {
			at, ok = rec.Pos, true
		}
		return true
	})
	return at, ok
}
