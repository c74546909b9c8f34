package session

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

func TestToolGetsArgumentsAndItsResultReachesTheModel(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("encrypt", harness.Call("encrypt", map[string]any{"text": "attack at dawn", "shift": 3})),
		harness.OnResult("encrypt", harness.Say("It reads {{tool_result}}.")),
	)
	type args struct {
		Text  string `json:"text" jsonschema:"what to encrypt"`
		Shift int    `json:"shift"`
	}
	var got args
	var from copilot.Call
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("encrypt", "Encrypts a text", func(ctx context.Context, a args) (string, error) {
			got = a
			from, _ = copilot.CallFrom(ctx)
			return strings.ToUpper(a.Text), nil
		}, copilot.SkipPermission()),
	}})
	out := st.Say(s, "please encrypt")
	if want := (args{"attack at dawn", 3}); got != want {
		t.Errorf("the tool got %+v, want %+v", got, want)
	}
	if from.SessionID != s.ID() || from.ToolName != "encrypt" || from.ToolCallID == "" || from.CallbackID == "" {
		t.Errorf("the call is %+v", from)
	}
	if out.Text() != "It reads ATTACK AT DAWN." {
		t.Errorf("the agent said %q", out.Text())
	}
	first := st.Model.ModelRequests()[0]
	i := slices.IndexFunc(first.Tools, func(tool offlinemodel.Tool) bool { return tool.Name == "encrypt" })
	if i < 0 {
		t.Fatalf("the model was offered %v", harness.Names(first.Tools))
	}
	if offered := first.Tools[i]; offered.Description != "Encrypts a text" ||
		!strings.Contains(string(offered.Parameters), "what to encrypt") {
		t.Errorf("the model was told of the tool: %+v", offered)
	}
}

// TestToolFailuresReachTheModel has a tool throw, return a failure, and answered without a result: the model gets three
// different results, and not the text of the exception.
func TestToolFailuresReachTheModel(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("try", harness.Call("throws", nil), harness.Call("fails", nil),
			harness.Call("no_result", nil)),
		harness.OnResult("", harness.Say("done")),
	)
	type none struct{}
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("throws", "Throws", func(context.Context, none) (string, error) {
			return "", errors.New("the secret of the exception")
		}, copilot.SkipPermission()),
		copilot.NewTool("fails", "Fails", func(context.Context, none) (*copilot.ToolResult, error) {
			return copilot.Failure("the disk is full"), nil
		}, copilot.SkipPermission()),
		{Definition: &cliv1.ToolDefinition{
			Name: "no_result", Description: "Answered by hand", SkipPermission: proto.Bool(true),
		}},
	}})
	said := make(chan error, 1)
	go func() {
		_, err := s.SendAndWait(st.Ctx, "try all three")
		said <- err
	}()
	st.Eventually("only the call that is answered by hand waits", func() bool {
		list, err := s.Pending(st.Ctx)
		return err == nil && len(list) == 1 && list[0].Proto.GetToolCall().GetToolName() == "no_result"
	})
	empty := &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_NoResult{NoResult: &bridgev1.NoResult{}}}
	err := s.Resolve(st.Ctx, st.Pending(s, 1)[0].GetCallbackId(),
		&bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: empty}})
	if err = errors.Join(err, <-said); err != nil {
		t.Fatal(err)
	}
	told := st.ToolResults()
	if len(told) != 3 {
		t.Fatalf("the model got the results %q", told)
	}
	if told["throws"] == told["fails"] || told["fails"] == told["no_result"] ||
		told["throws"] == told["no_result"] {
		t.Errorf("two of the failures read alike: %q", told)
	}
	if strings.Contains(told["throws"], "secret") || told["throws"] == "" {
		t.Errorf("of the exception the model was told %q", told["throws"])
	}
	if !strings.Contains(told["fails"], "the disk is full") {
		t.Errorf("of the failure the model was told %q", told["fails"])
	}
	if !strings.Contains(told["no_result"], "no result") {
		t.Errorf("of nothing the model was told %q", told["no_result"])
	}
	for _, done := range st.All(s, "tool.execution_complete") {
		if d := done.GetEvent().GetToolExecutionComplete(); d.GetSuccess() {
			t.Errorf("the CLI counts call %s as a success", d.GetToolCallId())
		}
	}
}

func TestToolTelemetryReachesTheEvent(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("measure", harness.Call("measure", nil)),
		harness.OnResult("measure", harness.Say("measured")))
	telemetry := `{"properties":{"unit":"mm"},"metrics":{"length":12}}`
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("measure", "Measures", func(context.Context, struct{}) (*copilot.ToolResult, error) {
			return &copilot.ToolResult{
				TextResultForLlm: "12 mm", ResultType: proto.String("success"),
				ToolTelemetryJson: proto.String(telemetry),
			}, nil
		}, copilot.SkipPermission()),
	}})
	st.Say(s, "measure it")
	d := st.First(s, "tool.execution_complete").GetEvent().GetToolExecutionComplete()
	var got struct {
		Properties struct{ Unit string }
		Metrics    struct{ Length float64 }
	}
	if err := json.Unmarshal([]byte(d.GetToolTelemetryJson()), &got); err != nil {
		t.Fatalf("telemetry %q: %v", d.GetToolTelemetryJson(), err)
	}
	if got.Properties.Unit != "mm" || got.Metrics.Length != 12 {
		t.Errorf("the event has the telemetry %s", d.GetToolTelemetryJson())
	}
}

// TestToolCallCarriesTraceparent has a separate CLI: only one with tracing on has a trace to report.
func TestToolCallCarriesTraceparent(t *testing.T) {
	t.Parallel()
	spans := filepath.Join(t.TempDir(), "spans.jsonl")
	tracing := harness.HostConfig{Env: map[string]string{
		"COPILOT_OTEL_ENABLED": "true", "COPILOT_OTEL_EXPORTER_TYPE": "file", "COPILOT_OTEL_FILE_EXPORTER_PATH": spans,
	}}
	st := harness.NewOwnScripted(t, tracing, harness.OnUser("trace", harness.Call("trace", nil)),
		harness.OnResult("trace", harness.Say("traced")))
	const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	var got copilot.Call
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("trace", "Traces", func(ctx context.Context, _ struct{}) (string, error) {
			got, _ = copilot.CallFrom(ctx)
			return "ok", nil
		}, copilot.SkipPermission()),
	}})
	st.Say(s, "trace this", copilot.WithPrompt(func(p *bridgev1.Prompt) {
		p.Traceparent = "00-" + traceID + "-00f067aa0ba902b7-01"
		p.Tracestate = "vendor=value"
	}))
	if !strings.Contains(got.Traceparent, traceID) {
		t.Errorf("the call has traceparent %q, tracestate %q", got.Traceparent, got.Tracestate)
	}
}

// TestParallelToolCalls has each of two calls wait for the other to have begun.
func TestParallelToolCalls(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("both", harness.Call("meet", map[string]any{"who": "left"}),
			harness.Call("meet", map[string]any{"who": "right"})),
		harness.OnResult("meet", harness.Say("they met")),
	)
	type args struct {
		Who string `json:"who"`
	}
	var meeting sync.WaitGroup
	meeting.Add(2)
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("meet", "Meets", func(ctx context.Context, a args) (string, error) {
			meeting.Done()
			both := make(chan struct{})
			go func() {
				meeting.Wait()
				close(both)
			}()
			select {
			case <-both:
				return a.Who + " met", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, copilot.SkipPermission()),
	}})
	st.Say(s, "both of you")
	requests := st.Model.ModelRequests()
	var results []string
	for _, m := range requests[len(requests)-1].Messages {
		if m.Role == offlinemodel.RoleTool {
			results = append(results, m.Text)
		}
	}
	if slices.Sort(results); !slices.Equal(results, []string{"left met", "right met"}) {
		t.Errorf("the model got the results %q", results)
	}
}

// TestToolCallTimesOut covers the two ways in which a call has a participant that does not answer: the model gets a
// failure when the session's time for callbacks is up.
func TestToolCallTimesOut(t *testing.T) {
	t.Parallel()
	declared := copilot.Tool{Definition: &cliv1.ToolDefinition{
		Name: "silent", Description: "Says nothing", SkipPermission: proto.Bool(true),
	}}
	for name, owned := range map[string]bool{"of a participant": false, "of the session": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("call", harness.Call("silent", nil)),
				harness.OnResult("silent", harness.Say("{{tool_result}}")))
			tool := declared
			tool.OwnedBySession = owned
			s := st.Create(copilot.SessionOptions{
				Tools: []copilot.Tool{tool}, CallbackTimeout: 200 * time.Millisecond,
			})
			frames := st.Callbacks(s.ID())
			out := st.Say(s, "call it")
			if !strings.Contains(out.Text(), "no participant answered in time") {
				t.Errorf("the model was told %q", out.Text())
			}
			asked := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL)
			over := frames.Resolved(asked.GetCallbackId())
			if over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_TIMED_OUT ||
				over.GetParticipantId() != "" {
				t.Errorf("the callback ended as %v", over)
			}
			// Too late now, and the session is none the worse for it.
			answer, _ := copilot.AnswerTool("at last")
			harness.WantReason(t, s.Resolve(st.Ctx, asked.GetCallbackId(), answer),
				bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
		})
	}
}

// TestToolOfOneWhoLeft has the model call a tool whose participant is gone by then. Whether or not the CLI knows that,
// the model gets a failure at once.
func TestToolOfOneWhoLeft(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		offlinemodel.Rule{When: offlinemodel.When{User: "call"}, WaitFor: "left",
			Reply: []offlinemodel.Step{harness.Call("fleeting", nil)}},
		harness.OnResult("fleeting", harness.Say("{{tool_result}}")),
	)
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("lasting", "Lasts", func(context.Context, struct{}) (string, error) { return "", nil }),
	}})
	other := st.Join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("fleeting", "Goes", func(context.Context, struct{}) (string, error) { return "unlikely", nil },
			copilot.SkipPermission()),
	}})
	turn := st.GoSay(s, "call it")
	st.Gate("left")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	st.Model.Release("left")
	if out := turn(); out.Text() == "" || strings.Contains(out.Text(), "unlikely") {
		t.Errorf("the model was told %q", out.Text())
	}
}

func TestSessionToolAnsweredBySecondParticipant(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("look", harness.Call("lookup", nil)),
		harness.OnResult("lookup", harness.Say("found {{tool_result}}")))
	declared := copilot.Tool{OwnedBySession: true, Definition: &cliv1.ToolDefinition{
		Name: "lookup", Description: "Looks up", SkipPermission: proto.Bool(true),
	}}
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{declared}})
	withHandler := declared
	withHandler.Handler = func(context.Context, json.RawMessage) (any, error) { return "it", nil }
	second := st.Join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{withHandler}})
	frames := st.Callbacks(s.ID())
	if out := st.Say(s, "look it up"); out.Text() != "found it" {
		t.Errorf("the agent said %q", out.Text())
	}
	asked := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL)
	if over := frames.Resolved(asked.GetCallbackId()); over.GetParticipantId() != second.ParticipantID() {
		t.Errorf("answered by %q, want %q", over.GetParticipantId(), second.ParticipantID())
	}
}

// TestWithoutAttach plays a turn with a tool call and a permission by unary calls alone,
// as a browser or grpcurl would.
func TestWithoutAttach(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("work", harness.Call("lookup", map[string]any{"key": "k"})),
		harness.OnResult("lookup", harness.Call("bash", harness.Shell("echo {{tool_result}} > out.txt"))),
		harness.OnResult("bash", harness.Say("written")),
	)
	config := st.Config()
	config.Tools = []*cliv1.ToolDefinition{{
		Name: "lookup", Description: "Looks up", SkipPermission: proto.Bool(true),
		ParametersJson: proto.String(`{"type":"object","properties":{"key":{"type":"string"}}}`),
	}}
	created, err := st.Client.Sessions().CreateSession(st.Ctx, &bridgev1.CreateSessionRequest{
		Config: config, Handlers: &bridgev1.Handlers{Permission: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := st.Adopt(st.Client.Session(created.GetSession().GetSessionId())).Session
	turn := st.GoSay(s, "work")

	asked := st.Pending(s, 1)[0]
	if asked.GetToolCall().GetToolName() != "lookup" || asked.GetToolCall().GetArgumentsJson() != `{"key":"k"}` {
		t.Fatalf("asked %v", asked)
	}
	if asked.GetPosition() == nil || asked.GetCreateTime() == nil || asked.GetDeadline() == nil {
		t.Errorf("position, time or deadline is missing: %v", asked)
	}
	answer, _ := copilot.AnswerTool("v")
	if err := s.Resolve(st.Ctx, asked.GetCallbackId(), answer); err != nil {
		t.Fatal(err)
	}
	st.First(s, "permission.requested")
	permission := st.Pending(s, 1)[0]
	if got := permission.GetPermission().GetPermissionRequest().GetShell().GetFullCommandText(); got != "echo v > out.txt" {
		t.Errorf("leave is asked for %q", got)
	}
	if err := s.Resolve(st.Ctx, permission.GetCallbackId(),
		copilot.AnswerPermission(copilot.ApproveOnce())); err != nil {
		t.Fatal(err)
	}
	if out := turn(); out.Text() != "written" {
		t.Errorf("the agent said %q", out.Text())
	}
	if got := st.Read("out.txt"); got != "v\n" {
		t.Errorf("the file has %q", got)
	}
	if rest := st.Pending(s, 0); len(rest) > 0 {
		t.Errorf("still pending: %v", rest)
	}
}

// TestPermissionNobodyHandles is denied at once, and the tool does not run.
func TestPermissionNobodyHandles(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{})
	frames := st.Callbacks(s.ID())
	st.Say(s, "touch it")
	asked := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
	if over := frames.Resolved(asked.GetCallbackId()); over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED {
		t.Errorf("the permission ended as %v", over)
	}
	if st.Exists("made") {
		t.Error("the command ran")
	}
}
