package history

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// IDs returns the ids of events; those without one are left out.
func IDs(events []*journal.Record) map[journal.ID]bool {
	ids := make(map[journal.ID]bool, len(events))
	for _, rec := range events {
		if rec.ID != (journal.ID{}) {
			ids[rec.ID] = true
		}
	}
	return ids
}

// Past returns how many events of a history that was read after a resume are older than the
// resume: those before the first that came as an event since.
func Past(history []*journal.Record, since map[journal.ID]bool) int {
	if i := slices.IndexFunc(history, func(r *journal.Record) bool { return since[r.ID] }); i >= 0 {
		return i
	}
	return len(history)
}

// CallID is of the tool call that an event or what a callback asks is about.
func CallID(data json.RawMessage) string {
	var d struct {
		ToolCallID        string
		PermissionRequest struct{ ToolCallID string }
	}
	_ = json.Unmarshal(data, &d) // what does not fit is about none
	return cmp.Or(d.ToolCallID, d.PermissionRequest.ToolCallID)
}

// Unanswered are the events of a history that ask something and have no answer in it,
// oldest first.
type Unanswered []*journal.Record

// Follow takes the next event.
func (u *Unanswered) Follow(rec *journal.Record) {
	switch {
	case callback.ForEvent(rec.Type) != nil:
		*u = append(*u, rec)
	case callback.Ends(rec.Type):
		var done, asked struct{ RequestID string }
		event.Data(rec, &done)
		*u = slices.DeleteFunc(*u, func(r *journal.Record) bool {
			return event.Data(r, &asked) && asked.RequestID == done.RequestID
		})
	case rec.Type == "tool.execution_complete":
		if id := CallID(event.Raw(rec)); id != "" {
			*u = slices.DeleteFunc(*u, func(r *journal.Record) bool { return CallID(event.Raw(r)) == id })
		}
	case rec.Type == "abort" && rec.Agent == "":
		// CLI 1.0.81 does not tell of each call that an abort has ended it.
		*u = slices.DeleteFunc(*u, func(r *journal.Record) bool { return r.Agent == "" })
	case Withdraws(rec):
		*u = nil
	}
}

// wasActive reports whether a resume was of a session that the process had, so that its turn went on.
func wasActive(rec *journal.Record) bool {
	var resumed struct{ SessionWasActive bool }
	return event.Data(rec, &resumed) && resumed.SessionWasActive
}

// Withdraws reports whether an event is a resume that has ended what an earlier process asked.
func Withdraws(rec *journal.Record) bool {
	var resumed struct{ ContinuePendingWork bool }
	return rec.Type == "session.resume" && event.Data(rec, &resumed) && !resumed.ContinuePendingWork && !wasActive(rec)
}
