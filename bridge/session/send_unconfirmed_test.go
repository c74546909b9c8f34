package session

import (
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// A message that was sent when the runtime ended is found in the history by its text, and the call returns the
// CLI's usual result.
func TestSentAfterAll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, params string
		want           string // "" where nothing tells
	}{
		"a message":             {"", `{"prompt":"two"}`, `{"messageId":"m2"}`},
		"by its name":           {"session.send", `{"prompt":"three"}`, `{"messageId":"m3"}`},
		"what is displayed":     {"", `{"prompt":"to the agent","displayPrompt":"two"}`, `{"messageId":"m2"}`},
		"one from before":       {"session.send", `{"prompt":"one"}`, ""},
		"another":               {"session.send", `{"prompt":"four"}`, ""},
		"several":               {"session.sendMessages", `{"messages":[{"prompt":"two"},{"prompt":"three"}]}`, `{"messageIds":["m2","m3"]}`},
		"several, in part":      {"session.sendMessages", `{"messages":[{"prompt":"three"},{"prompt":"four"}]}`, ""},
		"several, out of order": {"session.sendMessages", `{"messages":[{"prompt":"three"},{"prompt":"two"}]}`, ""},
		"none":                  {"session.sendMessages", `{"messages":[]}`, ""},
		"a fleet":               {"session.fleet.start", `{"prompt":"two"}`, ""},
		"a fleet of few words":  {"session.fleet.start", `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := journal.New(journal.Config{Epoch: 7})
			play := func(eventType, data string) {
				j.Append(&journal.Record{Type: eventType, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, eventType, data)})
			}
			play("user.message", `{"messageId":"m1","content":"one"}`)
			before := j.Last()
			play("user.message", `{"messageId":"m2","content":"two"}`)
			play("assistant.message", `{"content":"three"}`)
			play("user.message", `{"messageId":"m3","content":"three"}`)
			params, err := jsonobj.Parse([]byte(test.params))
			if err != nil {
				t.Fatal(err)
			}
			m := Message{Method: test.method, Params: params}
			ids, at := inHistory(t.Context(), j, m.outboxForm(params), before)
			got := ""
			if ids != nil {
				got = string(m.result(ids))
			}
			if got != test.want || (at != journal.Position{}) != (test.want != "") {
				t.Errorf("found %q at %v, want %q", got, at, test.want)
			}
		})
	}
}
