package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
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
		"events" + to:                                                {exitUsage, "", "want SESSION"},
		"events one --after x" + to:                                  {exitUsage, "", "--after"},
		"events one --new --after 1/2":                               {exitUsage, "", "--new excludes"},
		"events one --new --since 1h":                                {exitUsage, "", "--since excludes"},
		"events one --since yesterday":                               {exitUsage, "", "--since \"yesterday\": want a duration such as 10m"},
		"events one --no-follow --types user.mesage" + to:            {exitUsage, "", `did you mean "user.message"?`},
		"events one --no-follow --types new.thing,user.message" + to: {exitOK, "hello", `knows no event type "new.thing"`},
		"events one --raw -o json":                                   {exitUsage, "", "--raw excludes --output"},
		"events one --no-follow --since 1h" + to:                     {exitOK, "user.message            hello\n", ""},
		"events none" + to:                                           {exitFailed, "", "NotFound"},
		"events onee --no-follow" + to:                               {exitFailed, "", `Did you mean the session "one"?`},
		"events one --no-follow" + to:                                {exitOK, "user.message            hello\n", ""},
		"events --no-follow" + to + " one":                           {exitOK, "assistant.message", ""},
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
	nextOther, deleted := watching(t, t.Context(), "events", "one", "--target", target)
	expect(t, nil, "sessions send one again"+to, result{exitOK, "", ""})
	for !strings.Contains(next(), "user.message            again") {
	}
	for !strings.Contains(nextOther(), "user.message            again") { // it follows by now
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
	e := &eventPrinter{out: &printer{out: &output{w: &out}, format: formatText}}
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

// Events before --since, and gaps before those, are left out. What is new is printed, also of a clock that is behind.
func TestEventsSince(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	at := func(seconds int, text string) *bridgev1.SubscribeResponse {
		e := event(&cliv1.SessionEvent{EventType: "session.info", Data: &cliv1.SessionEvent_SessionInfo{
			SessionInfo: &cliv1.InfoData{Message: text}}})
		if seconds != 0 {
			e.Event.Timestamp = timestamppb.New(since.Add(time.Duration(seconds) * time.Second))
		}
		return &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Events{
			Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{e}}}}
	}
	gap := &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Gap{Gap: &bridgev1.Gap{}}}
	restart := &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_RuntimeRestarted{
		RuntimeRestarted: &bridgev1.RuntimeRestarted{}}}
	caughtUp := &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CaughtUp{CaughtUp: &bridgev1.CaughtUp{}}}
	for name, tc := range map[string]struct {
		frames []*bridgev1.SubscribeResponse
		want   []string
	}{
		"old":           {[]*bridgev1.SubscribeResponse{at(-1, "a"), restart, at(0, "b"), at(1, "c"), at(-1, "d")}, []string{"c", "d"}},
		"an old gap":    {[]*bridgev1.SubscribeResponse{gap, at(-1, "a"), at(1, "b")}, []string{"b"}},
		"a gap":         {[]*bridgev1.SubscribeResponse{at(-1, "a"), gap, at(1, "b"), gap}, []string{"GAP", "b", "GAP"}},
		"new":           {[]*bridgev1.SubscribeResponse{at(-2, "a"), caughtUp, at(-1, "b"), restart}, []string{"b", "runtime.restarted"}},
		"a gap and new": {[]*bridgev1.SubscribeResponse{at(-2, "a"), gap, caughtUp, at(-1, "b")}, []string{"GAP", "b"}},
	} {
		var out bytes.Buffer
		e := &eventPrinter{out: &printer{out: &output{w: &out}, format: formatText}, since: since}
		for _, frame := range tc.frames {
			if err := e.frame(frame); err != nil {
				t.Fatal(err)
			}
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		for i, line := range lines {
			if i >= len(tc.want) || !strings.HasSuffix(line, "  "+tc.want[i]) && !strings.Contains(line, "  "+tc.want[i]+"  ") {
				t.Errorf("%s: %q, want %q", name, lines, tc.want)
				break
			}
		}
		if len(lines) != len(tc.want) {
			t.Errorf("%s: %d lines, want %q", name, len(lines), tc.want)
		}
	}
}

func TestSinceTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"10m": "2026-11-28T09:50:00Z", "0s": "2026-11-28T10:00:00Z", "2026-11-28T09:00:00.5+01:00": "2026-11-28T08:00:00.5Z",
		"-10m": "", "10": "", "2026-11-28": "", "": "",
	} {
		got, err := sinceTime(text, now)
		if (err == nil) != (want != "") || err == nil && got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

// --raw prints what the CLI sent, whole, and gaps elsewhere.
func TestRawEvents(t *testing.T) {
	t.Parallel()
	var out, rest bytes.Buffer
	e := &eventPrinter{out: &printer{out: &output{w: &out}, format: formatText}, rest: &rest,
		whole: func(at *bridgev1.Position) (json.RawMessage, error) {
			return json.RawMessage(`{"whole": ` + copilot.FormatPosition(at) + `}`), nil
		}}
	original := `{"type": "x",  "data":"` + "\u202e" + `\u001b"}`
	for _, frame := range []*bridgev1.SubscribeResponse{
		{Frame: &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{
			{OriginalJson: &original},
			{Position: &bridgev1.Position{Epoch: 1, Seq: 2}, OriginalJson: new("{}"), Truncated: true},
		}}}},
		{Frame: &bridgev1.SubscribeResponse_Gap{Gap: &bridgev1.Gap{Reason: bridgev1.GapReason_GAP_REASON_TRIMMED}}},
		{Frame: &bridgev1.SubscribeResponse_TurnEnded{TurnEnded: &bridgev1.TurnEnded{}}},
	} {
		if err := e.frame(frame); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := out.String(), original+"\n{\"whole\": 1/2}\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := rest.String(), "GAP: events after 0/0 up to 0/0 are missing (trimmed)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
