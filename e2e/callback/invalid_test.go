package callback

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// permissionKinds are what the API can say to a permission request, and what comes of it.
var permissionKinds = map[string]struct {
	decision *copilot.Decision
	// result is how the CLI completes it; empty: it is not let through.
	result string
}{
	"approve once": {copilot.ApproveOnce(), "approved"},
	"reject":       {copilot.Reject("no"), "denied_interactively_by_user"},
	"approved, an older word": {&copilot.Decision{Variant: &cliv1.PermissionDecision_Approved{
		Approved: &cliv1.PermissionDecisionApproved{},
	}}, "approved"},
	"denied interactively, an older word": {&copilot.Decision{Variant: &cliv1.PermissionDecision_DeniedInteractivelyByUser{
		DeniedInteractivelyByUser: &cliv1.PermissionDecisionDeniedInteractivelyByUser{},
	}}, "denied_interactively_by_user"},
	"approved for a location": {&copilot.Decision{Variant: &cliv1.PermissionDecision_ApprovedForLocation{
		ApprovedForLocation: &cliv1.PermissionDecisionApprovedForLocation{},
	}}, ""},
	"denied by rules": {&copilot.Decision{Variant: &cliv1.PermissionDecision_DeniedByRules{
		DeniedByRules: &cliv1.PermissionDecisionDeniedByRules{},
	}}, ""},
	"cancelled": {&copilot.Decision{Variant: &cliv1.PermissionDecision_Cancelled{
		Cancelled: &cliv1.PermissionDecisionCancelled{},
	}}, ""},
	"a word nobody knows": {&copilot.Decision{Variant: &cliv1.PermissionDecision_Unrecognized{
		Unrecognized: `{"kind":"approve-everything"}`,
	}}, ""},
	"no word": {&copilot.Decision{}, ""},
}

// TestPermissionKinds: what the CLI would take and choke on does not reach it, and the
// request can be answered after it.
func TestPermissionKinds(t *testing.T) {
	t.Parallel()
	for name, kind := range permissionKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
				harness.OnResult("bash", harness.Say("done")))
			s := st.Create(copilot.SessionOptions{SessionHandlers: &bridgev1.Handlers{Permission: true}})
			turn := st.GoTurn(s, "touch") // a rejection without a word to the agent aborts it
			id := st.Pending(s, 1)[0].GetCallbackId()
			err := s.Resolve(st.Ctx, id, copilot.AnswerPermission(kind.decision))
			want := kind.result
			if want == "" {
				harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID)
				st.Pending(s, 1)
				err, want = s.Resolve(st.Ctx, id, copilot.AnswerPermission(copilot.ApproveOnce())), "approved"
			}
			if err != nil {
				t.Fatal(err)
			}
			turn()
			result := st.First(s, "permission.completed").GetEvent().GetPermissionCompleted().GetResult().ProtoReflect()
			if got := result.WhichOneof(result.Descriptor().Oneofs().Get(0)); got == nil || string(got.Name()) != want {
				t.Errorf("completed as %v, want %q", got, want)
			}
			if made := st.Exists("made"); made != (want == "approved") {
				t.Errorf("made: %v, as %q", made, want)
			}
		})
	}
}

// TestShortAnswers: a permission's answer in its short form, which fits nothing else.
func TestShortAnswers(t *testing.T) {
	t.Parallel()
	approve := &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}
	reject := &bridgev1.Answer{Answer: &bridgev1.Answer_Reject{Reject: &bridgev1.Reject{Feedback: "not there"}}}
	st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
		harness.OnUser("wait", harness.Call("waits", nil)),
		harness.OnResult("bash", harness.Say("told: {{tool_result}}")),
		harness.OnResult("waits", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{SessionHandlers: &bridgev1.Handlers{Permission: true},
		Tools: []copilot.Tool{harness.Declared("waits")}})
	for _, answer := range []*bridgev1.Answer{reject, approve} {
		turn := st.GoTurn(s, "touch")
		if err := s.Resolve(st.Ctx, st.Pending(s, 1)[0].GetCallbackId(), answer); err != nil {
			t.Fatal(err)
		}
		out := turn()
		if answer == reject && !strings.Contains(out.Text(), "not there") {
			t.Errorf("the agent was told %q", out.Text())
		}
		if made := st.Exists("made"); made != (answer == approve) {
			t.Errorf("made: %v", made)
		}
	}
}

const pictureType = cliv1.ExternalToolTextResultForLlmBinaryResultsForLlmType_EXTERNAL_TOOL_TEXT_RESULT_FOR_LLM_BINARY_RESULTS_FOR_LLM_TYPE_IMAGE

func withPicture(picture *cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Result{
		Result: &copilot.ToolResult{
			TextResultForLlm: "x", BinaryResultsForLlm: []*cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{picture},
		},
	}}}}
}

// TestBadAnswers to a tool call leave it pending.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("wait", harness.Call("waits", nil)),
		harness.OnResult("waits", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Declared("waits")}})
	turn := st.GoSay(s, "wait")
	id := st.Pending(s, 1)[0].GetCallbackId()
	good, _ := copilot.AnswerTool("good")
	for name, bad := range map[string]struct {
		id     string
		answer *bridgev1.Answer
		code   codes.Code
		reason bridgev1.ErrorReason
		field  string
	}{
		"unknown callback": {"nobody", good, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND,
			"callback_id"},
		"no callback": {"", good, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_NOT_FOUND, "callback_id"},
		"no answer":   {id, nil, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID, "answer"},
		"another kind": {
			id, copilot.AnswerPermission(copilot.ApproveOnce()), codes.InvalidArgument,
			bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID, "answer",
		},
		"leave": {
			id, &bridgev1.Answer{Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}}, codes.InvalidArgument,
			bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID, "answer",
		},
		"raw": {
			id, &bridgev1.Answer{Answer: &bridgev1.Answer_Raw{Raw: &bridgev1.RawAnswer{ResultJson: "{}"}}},
			codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID, "answer",
		},
		"tool without an outcome": {
			id, &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{}}},
			codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID, "answer.tool",
		},
		"telemetry that is no JSON": {
			id, &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Result{
				Result: &copilot.ToolResult{TextResultForLlm: "x", ToolTelemetryJson: proto.String("{")},
			}}}},
			codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID,
			"answer.tool.result.tool_telemetry_json",
		},
		// The CLI shows the model none of these pictures, or a broken one, and reports no error.
		"a picture without a MIME type": {
			id, withPicture(&cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{BinaryType: pictureType, Data: []byte("x")}),
			codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID,
			"answer.tool.result.binary_results_for_llm[0].mime_type",
		},
		"a picture without data": {
			id, withPicture(&cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{BinaryType: pictureType, MimeType: "image/png"}),
			codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID,
			"answer.tool.result.binary_results_for_llm[0].data",
		},
		"a picture without a type": {
			id, withPicture(&cliv1.ExternalToolTextResultForLlmBinaryResultsForLlm{MimeType: "image/png", Data: []byte("x")}),
			codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID,
			"answer.tool.result.binary_results_for_llm[0].binary_type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			harness.WantField(t, s.Resolve(st.Ctx, bad.id, bad.answer), bad.code, bad.reason, bad.field)
		})
	}
	if err := s.Resolve(st.Ctx, id, good); err != nil {
		t.Fatal(err)
	}
	harness.WantField(t, s.Resolve(st.Ctx, id, good), codes.FailedPrecondition,
		bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED, "callback_id")
	if out := turn(); out.Text() != "good" {
		t.Errorf("the agent said %q", out.Text())
	}
}
