package sim

import (
	"strings"
	"testing"
	"testing/synctest"
)

// recorded is a recording of a turn with a call of a caller's tool, as CLI 1.0.102 made it, without what the acceptor does not
// look at.
var recorded = []string{
	`> {"id":1,"method":"session.create","params":{"sessionId":"s1","tools":[{"name":"s"}]}}`,
	`< {"id":1,"result":{"sessionId":"s1"}}`,
	`< session.start e1 {"sessionId":"s1"}`,
	`> {"id":2,"method":"session.send","params":{"sessionId":"s1","prompt":"P0"}}`,
	`< pending_messages.modified e2 {}`,
	`< {"id":2,"result":{"messageId":"m1"}}`,
	`< user.message e3 {"content":"P0","messageId":"m1","interactionId":"i1","delivery":"idle"}`,
	`< assistant.turn_start e4 {"turnId":"0","interactionId":"i1"}`,
	`< assistant.message e5 {"content":"calling","toolRequests":[{"toolCallId":"c1"}]}`,
	`< tool.execution_start e6 {"toolCallId":"c1","toolName":"s"}`,
	`< external_tool.requested e7 {"requestId":"r1","toolCallId":"c1","toolName":"s"}`,
	`> {"id":3,"method":"session.tools.handlePendingToolCall","params":{"sessionId":"s1","requestId":"r1","result":"done"}}`,
	`< external_tool.completed e8 {"requestId":"r1"}`,
	`< {"id":3,"result":{"success":true}}`,
	`< tool.execution_complete e9 {"toolCallId":"c1","success":true}`,
	`< assistant.turn_end e10 {"turnId":"0"}`,
	`< assistant.turn_start e11 {"turnId":"1","interactionId":"i1"}`,
	`< assistant.message e12 {"content":"A0","toolRequests":[]}`,
	`< assistant.turn_end e13 {"turnId":"1"}`,
	`< assistant.idle e14 {}`,
	`< session.idle e15 {}`,
}

// accept has the model do what lines say. An event is its type, its id and its data.
func accept(t *testing.T, lines []string) (err error) {
	t.Helper()
	var recording []Line
	for _, l := range lines {
		from, text := From(l[0]), strings.TrimSpace(l[1:])
		if f := strings.SplitN(text, " ", 3); len(f) == 3 && from == CLI {
			text = `{"method":"session.event","params":{"event":{"type":"` + f[0] + `","id":"` + f[1] + `","data":` + f[2] + `}}}`
		}
		recording = append(recording, Line{from, text})
	}
	synctest.Test(t, func(*testing.T) { err = Accept([]Plan{{Steps: 1, Calls: "s"}}, recording) })
	return err
}

func TestAccept(t *testing.T) {
	if err := accept(t, recorded); err != nil {
		t.Error(err)
	}
}

// What the CLI cannot do is refused.
func TestAcceptRefuses(t *testing.T) {
	at := func(text string) int {
		for i, l := range recorded {
			if strings.Contains(l, text) {
				return i
			}
		}
		t.Fatalf("no line has %s", text)
		return 0
	}
	without := func(text string) []string {
		i := at(text)
		return append(append([]string{}, recorded[:i]...), recorded[i+1:]...)
	}
	swapped := func(one, other string) []string {
		all := append([]string{}, recorded...)
		i, j := at(one), at(other)
		all[i], all[j] = all[j], all[i]
		return all
	}
	changed := func(text, from, to string) []string {
		all := append([]string{}, recorded...)
		all[at(text)] = strings.Replace(all[at(text)], from, to, 1)
		return all
	}
	for name, lines := range map[string][]string{
		"a reply before its request":         swapped(`> {"id":2`, `< {"id":2`),
		"the end of a call before its reply": swapped("external_tool.completed", "tool.execution_complete"),
		"a turn that does not end":           without("turn_end e13"),
		"a session that does not rest":       without("session.idle"),
		"no idle agent":                      without("assistant.idle"),
		"no reply":                           without(`< {"id":3`),
		"an answer that is refused":          changed(`< {"id":3`, "true", "false"),
		"an error":                           changed(`< {"id":3`, `"result":{"success":true}`, `"error":{}`),
		"another delivery":                   changed("user.message", "idle", "queued"),
		"another request":                    changed("external_tool.completed", "r1", "r2"),
		"another interaction":                changed("turn_start e11", "i1", "i2"),
		"the id of another message":          changed("user.message", "m1", "m2"),
		"a failed call":                      changed("execution_complete", "true", "false"),
		"an unknown event":                   changed("assistant.idle", "assistant.idle", "assistant.unknown"),
	} {
		if err := accept(t, lines); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
