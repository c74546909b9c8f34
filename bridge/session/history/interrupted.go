package history

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// Unfinished reports whether a history ends within a turn: the agent did not reply to the last message, or its last
// reply calls tools. A turn that has failed, or that a caller aborted, has ended. An error behind the end of the turn's
// process is of a message that another process was about to take up.
func Unfinished(events []*journal.Record) bool {
	failed := false
	for _, rec := range slices.Backward(events) {
		if rec.Agent != "" {
			continue
		}
		switch rec.Type {
		case "user.message":
			return !failed
		case "assistant.message":
			var d struct{ ToolRequests []json.RawMessage }
			return !failed && event.Data(rec, &d) && len(d.ToolRequests) > 0
		case "abort":
			return false
		case "session.error":
			failed = failed || event.Text(rec, "errorType") != turn.LoggedError
		case "session.resume":
			failed = failed && wasActive(rec)
		case "session.shutdown":
			failed = false
		}
	}
	return false
}

// Unended reports whether a history ends within a turn in which a caller's tool has answered a call that has no end. The
// CLI process that had the answer would have written the end; another one waits for it until the turn is aborted.
func Unended(events []*journal.Record) bool {
	every := func(*journal.Record) bool { return true }
	return len(unended(events, "external_tool.requested", "external_tool.completed", every)) > 0
}

// Refused returns the ids of the permission requests with which a history ends that were refused and whose calls have no
// end. A CLI process that resumes the session ends such calls, and goes on with the turn by itself.
func Refused(events []*journal.Record) (requests []string) {
	denied := func(answer *journal.Record) bool {
		var result struct{ Kind string }
		return json.Unmarshal(event.Member(answer, "result"), &result) == nil && strings.HasPrefix(result.Kind, "denied")
	}
	return slices.Sorted(maps.Values(unended(events, "permission.requested", "permission.completed", denied)))
}

// Lingering returns the ids of the permission requests of the session's own agent that have no answer in a history and whose
// turn has ended; with withdrawn, a resume has ended all turns. Some CLI versions wait for them (quirks.KeepsPermissions).
func Lingering(events []*journal.Record, withdrawn bool) map[string]bool {
	open, out := map[string]string{}, map[string]bool{} // open has the tool calls of the requests
	end := func() {
		for id := range open {
			out[id] = true
		}
	}
	for _, rec := range events {
		if rec.Agent != "" {
			continue
		}
		id := event.Text(rec, "requestId")
		switch rec.Type {
		case callback.PermissionRequested:
			open[id] = CallID(event.Raw(rec))
		case "permission.completed":
			delete(open, id)
			delete(out, id)
		case "tool.execution_complete":
			maps.DeleteFunc(open, func(_, call string) bool { return call == CallID(event.Raw(rec)) })
			maps.DeleteFunc(out, func(id string, _ bool) bool { _, waits := open[id]; return !waits })
		case "session.resume":
			if Withdraws(rec) {
				end()
			}
		case "user.message", "abort", "assistant.turn_end":
			end()
		}
	}
	if withdrawn {
		end()
	}
	return out
}

// unended returns the requests of a type in the last turn of the session's own agent that have an answer of a type and of a
// kind, by their tool calls, which have no end.
func unended(events []*journal.Record, request, answer string, kind func(answer *journal.Record) bool) map[string]string {
	calls, out := map[string]string{}, map[string]string{}
	for _, rec := range events {
		if rec.Agent != "" {
			continue
		}
		switch rec.Type {
		case request:
			calls[event.Text(rec, "requestId")] = CallID(event.Raw(rec))
		case answer:
			id := event.Text(rec, "requestId")
			if call := calls[id]; call != "" && kind(rec) {
				out[call] = id
			}
		case "tool.execution_complete":
			delete(out, CallID(event.Raw(rec)))
		case "user.message", "assistant.turn_end", "abort":
			clear(out)
		}
	}
	return out
}

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
