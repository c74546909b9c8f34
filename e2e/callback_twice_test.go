package e2e

import (
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// The same answer may come again, such as after a broken connection, and counts once.
// Another answer comes too late, and so does anybody else's.
func TestAnswerGivenTwice(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("look", call("lookup", nil)), onResult("lookup", say("told: {{tool_result}}")))
	tool := declared("lookup")
	tool.OwnedBySession = true
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{tool}, MaxConcurrentTools: 1})
	one, two := st.attach(joinOf(s.ID(), nil)), st.attach(joinOf(s.ID(), nil))
	wait := st.goSay(s, "look")
	cb := one.asked(bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL)
	text := func(text string) *bridgev1.Answer {
		return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: text}}}}
	}
	first := one.answer(cb.GetCallbackId(), text("found"))
	if first.done == nil {
		t.Fatalf("the answer came to %v", first)
	}
	if again := one.answer(cb.GetCallbackId(), text("found")); !proto.Equal(again.done, first.done) {
		t.Errorf("the same again came to %v, want %v", again, first)
	}
	for who, late := range map[string]replied{
		"another answer":      one.answer(cb.GetCallbackId(), text("not found")),
		"somebody else's own": two.answer(cb.GetCallbackId(), text("found")),
	} {
		if late.failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
			t.Errorf("%s came to %v", who, late)
		}
	}
	if out := wait(); out.GetText() != "told: found" {
		t.Errorf("the agent said %q", out.GetText())
	}
}
