package callback

import (
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The same answer may come again, such as after a broken connection, and counts once. Another answer, and any other
// caller's, comes too late.
func TestAnswerGivenTwice(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("look", harness.Call("lookup", nil)),
		harness.OnResult("lookup", harness.Say("told: {{tool_result}}")))
	tool := harness.Declared("lookup")
	tool.OwnedBySession = true
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{tool}, MaxConcurrentTools: 1})
	one, two := st.Attach(harness.JoinOf(s.ID(), nil)), st.Attach(harness.JoinOf(s.ID(), nil))
	wait := st.GoSay(s, "look")
	cb := one.Asked(bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL)
	text := func(text string) *bridgev1.Answer {
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: text}}}}
	}
	first := one.Answer(cb.GetCallbackId(), text("found"))
	if first.Done == nil {
		t.Fatalf("the answer came to %v", first)
	}
	if again := one.Answer(cb.GetCallbackId(), text("found")); !proto.Equal(again.Done, first.Done) {
		t.Errorf("the same again came to %v, want %v", again, first)
	}
	for who, late := range map[string]harness.Replied{
		"another answer":      one.Answer(cb.GetCallbackId(), text("not found")),
		"somebody else's own": two.Answer(cb.GetCallbackId(), text("found")),
	} {
		if late.Failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
			t.Errorf("%s came to %v", who, late)
		}
	}
	if out := wait(); out.Text() != "told: found" {
		t.Errorf("the agent said %q", out.Text())
	}
}
