package loadcli

import (
	"fmt"
	"strings"
)

// Payload is an event to blast.
type Payload struct {
	// Name is what PromptBlast calls it.
	Name string
	// Type and Data are the event's.
	Type, Data string
	// Ephemeral is what the event says of itself.
	Ephemeral bool
}

// Payloads are the events, shaped and sized like those of the real CLI: a delta of
// about 0.4 KB, a tool's end of 1 KB, messages of 4 and 20 KB, and a system message of 40 KB.
var Payloads = []Payload{
	{"delta", "assistant.message_delta",
		`{"messageId":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a12","deltaContent":" the next one"}`, true},
	{"tool1k", "tool.execution_complete", toolData, false},
	{"msg4k", "assistant.message", messageData(3250), false},
	{"msg20k", "assistant.message", messageData(17700), false},
	{"system40k", "system.message", systemData, false},
}

const toolData = `{"toolCallId":"call_8zK1","model":"claude-sonnet-4.5","interactionId":"9f2e6c1c-ffb8-4d5e-a2c7-d8a2e5f8b0a1","success":true,` +
	`"result":{"content":"ok  \tgithub.com/x/y\t0.012s\n<exited with exit code 0>","detailedContent":"ok  \tgithub.com/x/y\t0.012s\n<exited with exit code 0>"},` +
	`"toolTelemetry":{"properties":{"customTimeout":"true","executionMode":"sync","detached":"false","shellType":"bash","runInTerminal":"false"},` +
	`"metrics":{"commandTimeoutMs":120000,"outputLength":52,"numberOfCommands":1},"restrictedProperties":{"command":"go test ./... -count=1 -run 'TestParse|TestFormat' 2>&1 | tail -n 40","cwd":"/home/user/project","shell":"/bin/bash","exitReason":"completed","outputPreview":"ok github.com/x/y 0.012s"}}}`

// systemData is instructions for the model: prose, with an escape or two in each line.
var systemData = `{"role":"system","content":` +
	quote(strings.Repeat("- Prefer small steps: say \"what\" you are about to do, then do it, and look at what came "+
		"of it before the next one.\n", 335)) + `}`

// messageData is the data of a message with n characters of Markdown, with the escapes
// and the code of a real one.
func messageData(n int) string {
	text := "The function `parse(\"x\")` returns an error.\n\n```go\nif err != nil {\n\treturn fmt.Errorf(\"parse: " +
		"%w\", err)\n}\n```\n\n" +
		"- it reads the header first, so that the size is known\n- then it reads the body in one call\n\n"
	return `{"messageId":"0b0f1f9a-3b0c-4a55-9d57-3f6f2f3c9a12","content":` +
		quote(strings.Repeat(text, n/len(text)+1)[:n]) +
		`,"toolRequests":[{"toolCallId":"call_8zK1","name":"bash","arguments":{"command":"go test ./...","timeout":120},"type":"function"}],` +
		`"interactionId":"9f2e6c1c-ffb8-4d5e-a2c7-d8a2e5f8b0a1"}`
}

// idHead is what event ids begin with; twelve digits follow.
const idHead = "7d0f1f9a-3b0c-4a55-9d57-"

// event is the JSON of an event, its members in the real CLI's order.
func event(kind, data, id string, ephemeral bool) string {
	extra := ""
	if ephemeral {
		extra = `"ephemeral":true,`
	}
	return `{"type":"` + kind + `","data":` + data + `,` + extra + `"id":"` + id +
		`","timestamp":"2026-01-02T03:04:05.678Z","parentId":"5a3c2f68-7b43-4be2-8c2c-6a9f6d0f7a20"}`
}

// wrap makes a notification of an event.
func wrap(session, event string) string {
	return `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":` + quote(session) + `,"event":` + event +
		`}}`
}

// Find returns the payload of a name.
func Find(name string) (Payload, error) {
	for _, p := range Payloads {
		if p.Name == name {
			return p, nil
		}
	}
	return Payload{}, fmt.Errorf("no payload %q", name)
}

// eventBody returns the payload's notification, and where in it the digits of the event's id are.
func (p Payload) eventBody(session string) (body string, at int) {
	body = wrap(session, event(p.Type, p.Data, idHead+strings.Repeat("0", 12), p.Ephemeral))
	return body, strings.Index(body, idHead) + len(idHead)
}

// Size is the length of the payload's JSON-RPC message.
func (p Payload) Size() int {
	body, _ := p.eventBody("c4b6d9e2-86b1-4b0c-9a53-5d8d3f0e1c77")
	return len(body)
}
