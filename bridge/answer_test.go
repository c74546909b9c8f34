package bridge

import (
	"slices"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// asked waits for a callback that it has not returned before, and returns its id. A stream that
// begins after the request of a callback and before its answer has the callback twice: among the
// pending ones of its first frame, and as the request in the journal.
func (s *reading) asked() (id string) {
	s.t.Helper()
	s.frame("a callback", func(f *bridgev1.SubscribeResponse) bool {
		id = f.GetCallbackRequested().GetCallback().GetCallbackId()
		if list := f.GetStarted().GetPendingCallbacks(); len(list) > 0 {
			id = list[0].GetCallbackId()
		}
		return id != "" && !slices.Contains(s.callbacks, id)
	})
	s.callbacks = append(s.callbacks, id)
	return id
}

func (s *reading) turnEnded(want bridgev1.TurnStatus) {
	s.t.Helper()
	s.frame("the end of a turn as "+want.String(), func(f *bridgev1.SubscribeResponse) bool {
		return f.GetTurnEnded().GetOutcome().GetStatus() == want
	})
}

// If a runtime ends with an answer, its successor receives the answer. The participant does not repeat it.
func TestAnswerOutlivesTheRuntime(t *testing.T) {
	t.Parallel()
	answers := map[string]*bridgev1.Answer{
		"session.tools.handlePendingToolCall": {Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{
			Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"},
		}}},
		"session.permissions.handlePendingPermissionRequest": {Answer: &bridgev1.Answer_Approve{Approve: &bridgev1.Approve{}}},
	}
	for method, answer := range answers {
		for name, deaths := range map[string]int{"one death": 1, "two deaths": 2} {
			t.Run(method+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newLives(t, func(life int) fakecli.Script {
					s := hanging
					if life < deaths {
						s.Faults = []fakecli.MethodFault{{Method: method, Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
					}
					return s
				})
				r.create("s1", ownTool, func(q *bridgev1.CreateSessionRequest) {
					if answer.GetApprove() != nil {
						q.Config.Tools[0].SkipPermission = nil
						q.Handlers = &bridgev1.Handlers{Permission: true}
					}
				})
				r.ask("s1", "hi")
				watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1"), Callbacks: true})
				r.begin("s1", "tool")
				if _, err := r.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{SessionId: "s1", CallbackId: watching.asked(), Answer: answer}); err != nil {
					t.Fatalf("the answer: %v", err)
				}
				if n := r.count(); n != deaths+1 {
					t.Errorf("there were %d lives, want %d", n, deaths+1)
				}
				if answer.GetApprove() != nil { // now the tool itself is called
					if _, err := r.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{
						SessionId: "s1", CallbackId: watching.asked(), Answer: answers["session.tools.handlePendingToolCall"],
					}); err != nil {
						t.Fatalf("the tool's answer: %v", err)
					}
				}
				watching.turnEnded(bridgev1.TurnStatus_TURN_STATUS_COMPLETED)
			})
		}
	}
}
