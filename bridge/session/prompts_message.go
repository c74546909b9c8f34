package session

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// plainMembers are the members of a prompt that hold ids, enums, or the words and files of the user, in
// which no member is a secret because of its name.
var plainMembers = map[string]bool{
	"prompt": true, "displayPrompt": true, "attachments": true, "messages": true, "responseFormat": true,
	"traceparent": true, "tracestate": true, "mode": true, "agentMode": true, "sessionId": true,
}

// withoutSecrets returns the stored form of a prompt's parameters, and the paths of the omitted secrets.
func withoutSecrets(params json.RawMessage) (json.RawMessage, []string) {
	if plain(params) {
		return params, nil
	}
	all, err := jsonobj.Parse(params)
	if err != nil {
		return params, nil
	}
	var lacks []string
	kept := make(jsonobj.Object, 0, len(all))
	for _, m := range all {
		if !plainMembers[m.Key] {
			one := config.WithoutSecrets(jsonobj.Object{m}.JSON(), "", &lacks)
			if o, err := jsonobj.Parse(one); err == nil {
				kept = append(kept, o...)
			}
			continue
		}
		kept = append(kept, m)
	}
	return kept.JSON(), lacks
}

// plain reports whether an object has plain members only.
func plain(params json.RawMessage) bool {
	for m, err := range translate.Members(params) {
		if err != nil || !plainMembers[string(m.Name)] {
			return false
		}
	}
	return true
}

// messageIDs returns the ids in the CLI's answer to a prompt; some answers have none.
func messageIDs(result json.RawMessage) []string {
	if id, found := bytes.CutPrefix(result, []byte(`{"messageId":`)); found { // the CLI's own form
		if id, found = bytes.CutSuffix(id, []byte("}")); found && bytes.IndexByte(id, ',') < 0 {
			if text := jsonobj.Text(id); text != "" {
				return []string{text}
			}
		}
	}
	var r struct {
		MessageID  string
		MessageIDs []string
	}
	_ = json.Unmarshal(result, &r)
	if r.MessageID != "" {
		return []string{r.MessageID}
	}
	return r.MessageIDs
}

// contentOf returns the text of a user's message.
func contentOf(rec *journal.Record) string {
	return event.Text(rec, "content")
}

// saidBy is a user's message as the outbox compares it with prompts.
func saidBy(rec *journal.Record) outbox.Said {
	var e struct{ Timestamp time.Time }
	if json.Unmarshal(rec.JSON, &e) != nil || e.Timestamp.IsZero() {
		e.Timestamp = time.Now() // it does not say, so that it may have been any time
	}
	return outbox.Said{MessageID: messageIDOf(rec), Content: contentOf(rec), At: e.Timestamp}
}

// firstOf returns the first of some ids; "" if there are none.
func firstOf(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

// lastOf returns the last of some ids; "" if there are none.
func lastOf(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[len(ids)-1]
}
