package copilot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

type cityArgs struct {
	City  string `json:"city" jsonschema:"the city to look up"`
	Units string `json:"units,omitempty"`
}

type cityReport struct {
	City string `json:"city"`
	Sun  bool   `json:"sun"`
}

// testTools is one tool for each thing that a tool can do.
func testTools() []copilot.Tool {
	return []copilot.Tool{
		copilot.NewTool("text", "", func(_ context.Context, a cityArgs) (string, error) { return "in " + a.City, nil }),
		copilot.NewTool("json", "", func(_ context.Context, a cityArgs) (cityReport, error) {
			return cityReport{City: a.City, Sun: true}, nil
		}),
		copilot.NewTool("failure", "", func(context.Context, struct{}) (*copilot.ToolResult, error) {
			return copilot.Failure("no data"), nil
		}),
		copilot.NewTool("nothing", "", func(context.Context, struct{}) (copilot.NoResult, error) {
			return copilot.NoResult{}, nil
		}),
		copilot.NewTool("nil", "", func(context.Context, struct{}) (*copilot.ToolResult, error) { return nil, nil }),
		copilot.NewTool("error", "", func(context.Context, struct{}) (string, error) {
			return "", errors.New("disk on fire")
		}),
		copilot.NewTool("toolError", "", func(context.Context, struct{}) (string, error) {
			return "", fmt.Errorf("look up: %w", &copilot.ToolError{Text: "no such city"})
		}),
		copilot.NewTool("panic", "", func(context.Context, struct{}) (string, error) { panic("boom") }),
		copilot.NewTool("abstain", "", func(context.Context, struct{}) (string, error) {
			return "", copilot.ErrAbstain
		}),
		copilot.NewTool("unencodable", "", func(context.Context, struct{}) (any, error) { return func() {}, nil }),
		copilot.NewTool("garbled", "", func(context.Context, struct{}) (string, error) { return "a\xffb", nil }),
		copilot.NewTool("garbledResult", "", func(context.Context, struct{}) (*copilot.ToolResult, error) {
			return copilot.Failure("a\xffb"), nil
		}),
		{
			Definition: &cliv1.ToolDefinition{Name: "raw"},
			Handler: func(ctx context.Context, args json.RawMessage) (any, error) {
				call, _ := copilot.CallFrom(ctx)
				return strings.Join([]string{call.SessionID, call.ToolCallID, call.Traceparent, string(args)}, " "), nil
			},
		},
	}
}

// failsFor checks a failure with a text for the model and one for the record.
func failsFor(model, record string) func(*bridgev1.Answer) bool {
	return func(an *bridgev1.Answer) bool {
		r := an.GetTool().GetResult()
		return r.GetResultType() == "failure" && r.GetTextResultForLlm() == model && r.GetError() == record
	}
}

func TestToolOutcomes(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{Tools: testTools()})
	for _, tc := range []struct {
		tool, args string
		check      func(*bridgev1.Answer) bool
	}{
		{"text", `{"city":"Oslo"}`, func(an *bridgev1.Answer) bool { return an.GetTool().GetText() == "in Oslo" }},
		{"json", `{"city":"Oslo"}`, func(an *bridgev1.Answer) bool {
			return an.GetTool().GetText() == `{"city":"Oslo","sun":true}`
		}},
		{"text", `{}`, failsWith("city")},
		{"text", `{"city":7}`, failsWith("city")},
		{"text", `{"city":"Oslo","planet":"Mars"}`, failsWith("planet")},
		{"text", `{"city":`, failsWith("JSON")},
		{"failure", ``, func(an *bridgev1.Answer) bool {
			r := an.GetTool().GetResult()
			return r.GetTextResultForLlm() == "no data" && r.GetResultType() == "failure"
		}},
		{"nothing", `{}`, func(an *bridgev1.Answer) bool { return an.GetTool().GetText() == "Done." }},
		{"nil", `{}`, func(an *bridgev1.Answer) bool { return an.GetTool().GetText() == "Done." }},
		{"error", `{}`, failsFor("The tool failed.", "disk on fire")},
		{"panic", `{}`, failsFor("The tool failed.", "the handler panicked: boom")},
		{"toolError", `{}`, failsFor("no such city", "no such city")},
		{"unencodable", `{}`, failsWith("its result cannot be encoded")},
		{"garbled", `{}`, func(an *bridgev1.Answer) bool { return an.GetTool().GetText() == "a\uFFFDb" }},
		{"garbledResult", `{}`, func(an *bridgev1.Answer) bool {
			return strings.Contains(an.GetError().GetMessage(), "UTF-8")
		}},
		{"abstain", `{}`, func(an *bridgev1.Answer) bool { return an.GetAbstain() != nil }},
		{"raw", `{"x":1}`, func(an *bridgev1.Answer) bool {
			return an.GetTool().GetText() == `s1 call-raw{"x":1} 00-trace {"x":1}`
		}},
	} {
		a.ask(toolCall(tc.tool+tc.args, tc.tool, tc.args))
		got := a.answer()
		if got.GetCallbackId() != tc.tool+tc.args || !tc.check(got.GetAnswer()) {
			t.Errorf("%s(%s): %v", tc.tool, tc.args, got)
		}
		a.done(got.GetCallbackId())
	}
}

// failsWith checks for a failure that the agent sees, with a word in it.
func failsWith(word string) func(*bridgev1.Answer) bool {
	return func(an *bridgev1.Answer) bool {
		r := an.GetTool().GetResult()
		return r.GetResultType() == "failure" && strings.Contains(r.GetTextResultForLlm(), word)
	}
}

func TestPermissionOutcomes(t *testing.T) {
	t.Parallel()
	shell := &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Shell{
		Shell: &cliv1.PermissionRequestShell{FullCommandText: "ls"},
	}}
	custom := &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_CustomTool{
		CustomTool: &cliv1.PermissionRequestCustomTool{},
	}}
	future := &cliv1.PermissionRequest{Variant: &cliv1.PermissionRequest_Unrecognized{
		Unrecognized: `{"kind":"teleport"}`,
	}}
	approved := func(an *bridgev1.Answer) bool { return an.GetPermission().GetApproveOnce() != nil }
	rejected := func(text string) func(*bridgev1.Answer) bool {
		return func(an *bridgev1.Answer) bool { return an.GetPermission().GetReject().GetFeedback() == text }
	}
	fails := func(an *bridgev1.Answer) bool { return an.GetError().GetMessage() != "" }
	byKind := func(_ context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		return copilot.Reject("no " + req.Kind), nil
	}
	for name, tc := range map[string]struct {
		handler copilot.PermissionHandler
		request *cliv1.PermissionRequest
		check   func(*bridgev1.Answer) bool
	}{
		"approve all":   {copilot.ApproveAll, shell, approved},
		"deny all":      {copilot.DenyAll, shell, rejected("Permission denied.")},
		"rule fits":     {copilot.FirstOf(copilot.ApproveKinds("shell"), byKind), shell, approved},
		"rule does not": {copilot.FirstOf(copilot.ApproveKinds("read"), byKind), custom, rejected("no custom-tool")},
		"unknown kind":  {copilot.FirstOf(copilot.ApproveKinds("read"), byKind), future, rejected("no teleport")},
		"nobody's": {copilot.ApproveKinds("read"), shell,
			func(an *bridgev1.Answer) bool { return an.GetAbstain() != nil }},
		"session approval": {decide(copilot.ApproveForSession()), shell,
			func(an *bridgev1.Answer) bool { return an.GetPermission().GetApproveForSession() != nil }},
		"nobody there": {decide(copilot.UserNotAvailable()), shell,
			func(an *bridgev1.Answer) bool { return an.GetPermission().GetUserNotAvailable() != nil }},
		"no decision": {decide(nil), shell, fails},
		"error": {func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.ApproveOnce(), errors.New("no terminal")
		}, shell, fails},
		"panic": {func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) { panic("boom") }, shell,
			fails},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFake(t)
			_, a := session(t, f, c, copilot.SessionOptions{OnPermission: tc.handler})
			a.ask(permission("1", tc.request))
			if got := a.answer().GetAnswer(); !tc.check(got) {
				t.Errorf("answer = %v", got)
			}
		})
	}
}

func decide(d *copilot.Decision) copilot.PermissionHandler {
	return func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) { return d, nil }
}

func permission(id string, req *cliv1.PermissionRequest) *bridgev1.Callback {
	return &bridgev1.Callback{
		CallbackId: id, SessionId: "s1", Kind: bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION,
		Request: &bridgev1.Callback_Permission{Permission: &cliv1.PermissionRequestedData{
			RequestId: id, PermissionRequest: req,
		}},
	}
}

func TestRawRequests(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{OnRequest: map[string]copilot.RequestHandler{
		"new.request": func(_ context.Context, req *copilot.Request) (any, error) {
			return map[string]any{"answer": string(req.Params), "wasFreeform": true}, nil
		},
		"new.refused":   func(context.Context, *copilot.Request) (any, error) { return nil, errors.New("no") },
		"new.requested": func(context.Context, *copilot.Request) (any, error) { panic("boom") },
	}})
	raw := func(method string) *bridgev1.Callback {
		return &bridgev1.Callback{
			CallbackId: method, SessionId: "s1", Kind: bridgev1.CallbackKind_CALLBACK_KIND_RAW,
			Request: &bridgev1.Callback_Raw{Raw: &bridgev1.RawCallback{Method: method, ParamsJson: "[1]"}},
		}
	}
	a.ask(raw("unheard.of")) // no handler answers it here
	a.ask(raw("new.request"))
	if got := a.answer().GetAnswer().GetRaw().GetResultJson(); got != `{"answer":"[1]","wasFreeform":true}` {
		t.Errorf("answer = %s", got)
	}
	a.ask(raw("new.refused"))
	if got := a.answer().GetAnswer().GetError().GetMessage(); got != "The handler failed." {
		t.Errorf("error = %q", got)
	}
	a.ask(raw("new.requested"))
	if got := a.answer().GetAnswer().GetError().GetMessage(); got != "The handler failed." {
		t.Errorf("error = %q", got)
	}
}

func TestWithdrawnCallbackEndsItsHandler(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	started, ended := make(chan struct{}, 2), make(chan error, 2)
	_, a := session(t, f, c, copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("wait", "", func(ctx context.Context, _ struct{}) (string, error) {
			started <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return "too late", nil
		}),
		copilot.NewTool("quick", "", func(context.Context, struct{}) (string, error) { return "ok", nil }),
	}})
	check := func(want copilot.CallbackOutcome) {
		t.Helper()
		var we *copilot.WithdrawnError
		if err := receive(t, ended, "end"); !errors.As(err, &we) || we.Outcome != want {
			t.Errorf("cause = %v, want %v", err, want)
		}
	}
	a.ask(toolCall("1", "wait", "{}"))
	receive(t, started, "call")
	a.resolved("1", bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN)
	check(copilot.CallbackWithdrawn)

	// Also when that happened while the connection was broken.
	a.ask(toolCall("2", "wait", "{}"))
	receive(t, started, "call")
	a.end <- failure(codes.Unavailable, "", "cut")
	a = f.attached(t)
	check("")

	a.ask(toolCall("3", "quick", "{}"))
	if got := a.answer(); got.GetCallbackId() != "3" {
		t.Errorf("a withdrawn call was answered: %v", got)
	}
}

func TestToolsAreBoundedAndQuestionsAreNotHeldUp(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	started, release := make(chan struct{}, 4), make(chan struct{})
	_, a := session(t, f, c, copilot.SessionOptions{
		MaxConcurrentTools: 2,
		OnPermission:       copilot.ApproveAll,
		Tools: []copilot.Tool{
			copilot.NewTool("wait", "", func(context.Context, struct{}) (string, error) {
				started <- struct{}{}
				<-release
				return "ok", nil
			}),
		},
	})
	for _, id := range []string{"1", "2", "3"} {
		a.ask(toolCall(id, "wait", "{}"))
	}
	receive(t, started, "call")
	receive(t, started, "call")
	a.ask(permission("p", nil))
	if got := a.answer(); got.GetCallbackId() != "p" {
		t.Errorf("answer = %v", got)
	}
	if len(started) != 0 {
		t.Error("a third tool runs")
	}
	close(release)
	for range 3 {
		a.done(a.answer().GetCallbackId())
	}
}

func TestRefusedAnswers(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{Tools: testTools()})
	refuse := func(id string, code codes.Code, reason bridgev1.ErrorReason) {
		a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Failed{Failed: &bridgev1.AttachFailed{Subject: &bridgev1.AttachFailed_CallbackId{CallbackId: id}, Failure: &bridgev1.Failure{Code: int32(code), Reason: reason, Message: "refused"}}}})
	}
	// Invalid: an error takes its place, so that the turn goes on.
	a.ask(toolCall("1", "nothing", "{}"))
	a.answer()
	refuse("1", codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID)
	if got := a.answer().GetAnswer().GetError().GetMessage(); got != "refused" {
		t.Errorf("error = %q", got)
	}
	a.done("1")
	// The runtime is away: the same answer again.
	a.ask(toolCall("2", "nothing", "{}"))
	a.answer()
	refuse("2", codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_RUNTIME_LOST)
	if got := a.answer().GetAnswer().GetTool().GetText(); got != "Done." {
		t.Errorf("the answer is %q", got)
	}
	// Over: nothing more is said.
	refuse("2", codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
	a.ask(toolCall("3", "nothing", "{}"))
	if got := a.answer(); got.GetCallbackId() != "3" {
		t.Errorf("answer = %v", got)
	}
}

func TestWhoseCallbacksAreAnswered(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ch := open(t, c, copilot.SessionOptions{Tools: append(testTools(),
		copilot.NewTool("owned", "", func(context.Context, struct{}) (string, error) { return "", nil },
			copilot.OwnedBySession()),
		copilot.Tool{Definition: &cliv1.ToolDefinition{Name: "declared"}},
	)})
	others := toolCall("others", "nothing", "{}")
	others.ParticipantIds = []string{"p2"}
	orphan := toolCall("orphan", "nothing", "{}")
	orphan.ParticipantIds = nil
	a := f.attached(t, others, orphan)
	receive(t, ch, "session")
	if got := a.answer(); got.GetCallbackId() != "orphan" {
		t.Errorf("answer = %v", got)
	}
	unoffered := func(cb *bridgev1.Callback) {
		a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackRequested{
			CallbackRequested: &bridgev1.CallbackRequested{Callback: cb},
		}})
	}
	unoffered(toolCall("not mine", "nothing", "{}"))
	a.ask(toolCall("by hand", "declared", "{}"))
	unoffered(toolCall("the session's", "owned", "{}"))
	if got := a.answer(); got.GetCallbackId() != "the session's" {
		t.Errorf("answer = %v", got)
	}
}

func TestToolDefinitions(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, cityArgs) (string, error) { return "", nil }
	got := copilot.NewTool("t", "what it does", fn, copilot.SkipPermission(), copilot.OverridesBuiltIn(),
		copilot.WithDefinition(func(d *cliv1.ToolDefinition) { d.Title = proto.String("T") })).Definition
	want := &cliv1.ToolDefinition{
		Name: "t", Description: "what it does", Title: proto.String("T"),
		SkipPermission: proto.Bool(true), OverridesBuiltInTool: proto.Bool(true),
		ParametersJson: proto.String(`{"type":"object","properties":{` +
			`"city":{"type":"string","description":"the city to look up"},"units":{"type":"string"}},` +
			`"required":["city"],"additionalProperties":false}`),
	}
	if !proto.Equal(got, want) {
		t.Errorf("definition = %v\nwant         %v", got, want)
	}
	schema := `{"type":"object","properties":{"city":{"type":"string","enum":["Oslo"]}}}`
	own := copilot.NewTool("t", "", fn, copilot.WithParameters(json.RawMessage(schema)))
	if got := own.Definition.GetParametersJson(); got != schema {
		t.Errorf("schema = %s", got)
	}
	result, err := own.Handler(t.Context(), json.RawMessage(`{"city":"Rome"}`))
	if r, ok := result.(*copilot.ToolResult); err != nil || !ok || r.GetResultType() != "failure" {
		t.Errorf("a city that is not in the schema gives %v, %v", result, err)
	}
}

func TestToolResults(t *testing.T) {
	t.Parallel()
	if r := copilot.Rejected("no"); r.GetResultType() != "rejected" || r.GetTextResultForLlm() != "no" {
		t.Errorf("rejected = %v", r)
	}
	if r := copilot.Denied("no"); r.GetResultType() != "denied" || r.GetTextResultForLlm() != "no" {
		t.Errorf("denied = %v", r)
	}
	for mimeType, want := range map[string]string{"image/png": "IMAGE", "application/pdf": "RESOURCE"} {
		r := copilot.Binary([]byte{1}, mimeType, "text")
		file := r.GetBinaryResultsForLlm()[0]
		if got := file.GetBinaryType().String(); !strings.HasSuffix(got, want) || file.GetMimeType() != mimeType {
			t.Errorf("%s: %v", mimeType, r)
		}
	}
}
