package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func TestEventsCommand(t *testing.T) {
	t.Parallel()
	target := server(t)
	to := " --target " + target
	expect(t, nil, "sessions create --id one"+to, result{exitOK, "one\n", ""})
	expect(t, nil, "call SessionService/SendAndWait"+to+
		" {\"sessionId\":\"one\",\"prompt\":{\"text\":\"hello\"}}", result{exitOK, "", ""})
	for args, want := range map[string]result{
		"events" + to:                      {exitUsage, "", "want SESSION"},
		"events one --after x" + to:        {exitUsage, "", "--after"},
		"events one --new --after 1/2":     {exitUsage, "", "--new excludes"},
		"events none" + to:                 {exitFailed, "", "NotFound"},
		"events onee --no-follow" + to:     {exitFailed, "", `Did you mean the session "one"?`},
		"events one --no-follow" + to:      {exitOK, "user.message            hello\n", ""},
		"events --no-follow" + to + " one": {exitOK, "assistant.message", ""},
	} {
		expect(t, nil, args, want)
	}
	// A document's position continues after it.
	all := expect(t, nil, "events one --no-follow -o json"+to, result{exitOK, `"event":{`, ""})
	lines := strings.SplitAfter(all.stdout, "\n")
	var second struct{ Position string }
	if err := json.Unmarshal([]byte(lines[1]), &second); err != nil || second.Position == "" {
		t.Fatalf("%s: %v", lines[1], err)
	}
	rest := expect(t, nil, "events one --no-follow -o json --after "+second.Position+to, result{exitOK, "", ""})
	if rest.stdout != strings.Join(lines[2:], "") {
		t.Errorf("after %s: %s, want %s", second.Position, rest.stdout, strings.Join(lines[2:], ""))
	}
	only := expect(t, nil, "events one --no-follow -o json --types user.message"+to, result{exitOK, `"user.message"`, ""})
	if strings.Count(only.stdout, "\n") != 1 {
		t.Errorf("--types: %s", only.stdout)
	}
}

// events follows a session until it is deleted or the user has seen enough.
func TestEventsFollows(t *testing.T) {
	t.Parallel()
	target := server(t)
	to := " --target " + target
	expect(t, nil, "sessions create --id one"+to, result{exitOK, "one\n", ""})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	next, ended := watching(t, ctx, "events", "one", "--target", target)
	_, deleted := watching(t, t.Context(), "events", "one", "--target", target)
	expect(t, nil, "sessions send one again"+to, result{exitOK, "", ""})
	for !strings.Contains(next(), "user.message            again") {
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("the end of following is code %d", code)
	}
	expect(t, nil, "sessions delete one"+to, result{exitOK, "", ""})
	if code := <-deleted; code != exitOK {
		t.Errorf("the end of the session is code %d", code)
	}
}

func event(data *cliv1.SessionEvent) *bridgev1.Event { return &bridgev1.Event{Event: data} }

func delta(message, text string) *bridgev1.Event {
	return event(&cliv1.SessionEvent{EventType: "assistant.message_delta", Data: &cliv1.SessionEvent_AssistantMessageDelta{
		AssistantMessageDelta: &cliv1.AssistantMessageDeltaData{MessageId: message, DeltaContent: text},
	}})
}

func message(id, text string) *bridgev1.Event {
	return event(&cliv1.SessionEvent{EventType: "assistant.message", Data: &cliv1.SessionEvent_AssistantMessage{
		AssistantMessage: &cliv1.AssistantMessageData{MessageId: id, Content: text},
	}})
}

// Streamed text is printed once, as it comes, and what the agent writes does nothing to the terminal.
func TestEventLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := &eventPrinter{out: &printer{out: &out, format: formatText}}
	for _, one := range []*bridgev1.Event{
		delta("1", "Hel"), delta("1", "lo\x1b[2J\n"), delta("2", "other"), message("2", "other"), message("3", "whole"),
		message("4", ""),
		event(&cliv1.SessionEvent{EventType: "tool.execution_start", Data: &cliv1.SessionEvent_ToolExecutionStart{
			ToolExecutionStart: &cliv1.ToolExecutionStartData{ToolName: "bash",
				ArgumentsJson: new(`{"command":"a` + "\u202e" + `"}`)},
		}}),
		event(&cliv1.SessionEvent{EventType: "new.type", Data: &cliv1.SessionEvent_Unrecognized{Unrecognized: `{"a":1}`}}),
	} {
		if err := e.event(one); err != nil {
			t.Fatal(err)
		}
	}
	gap := &bridgev1.Gap{Reason: bridgev1.GapReason_GAP_REASON_TRIMMED, Through: &bridgev1.Position{Epoch: 1, Seq: 2}}
	if err := e.frame(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Gap{Gap: gap}}); err != nil {
		t.Fatal(err)
	}
	const want = `          assistant.message       Hello␛[2J

          assistant.message       other
          assistant.message       whole
          tool.execution_start    bash {"command":"a<U+202E>"}
          new.type                {"a":1}
          GAP                     events after 0/0 up to 1/2 are missing (trimmed)
`
	if got := out.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
