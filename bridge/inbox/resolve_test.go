package inbox_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

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
				r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
					s := bridgetest.Hanging
					if life < deaths {
						s.Faults = []fakecli.MethodFault{{Method: method, Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
					}
					return s
				}))
				r.Create("s1", bridgetest.WithTool, func(q *bridgev1.CreateSessionRequest) {
					if answer.GetApprove() != nil {
						q.Config.Tools[0].SkipPermission = nil
						q.Handlers = &bridgev1.Handlers{Permission: true}
					}
				})
				r.Ask("s1", "hi")
				watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1"), Callbacks: true})
				r.Begin("s1", "tool")
				if _, err := r.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{SessionId: "s1", CallbackId: watching.Callback(), Answer: answer}); err != nil {
					t.Fatalf("the answer: %v", err)
				}
				if n := len(r.Processes()); n != deaths+1 {
					t.Errorf("there were %d lives, want %d", n, deaths+1)
				}
				if answer.GetApprove() != nil { // now the tool itself is called
					if _, err := r.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{
						SessionId: "s1", CallbackId: watching.Callback(), Answer: answers["session.tools.handlePendingToolCall"],
					}); err != nil {
						t.Fatalf("the tool's answer: %v", err)
					}
				}
				watching.TurnEnded(bridgev1.TurnStatus_TURN_STATUS_COMPLETED)
			})
		}
	}
}

// An answer with a request id that comes again, also in the next life, is no second one:
// whether its end was seen or not.
func TestResolveComesAgain(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	r.Create("s1", bridgetest.WithTool)
	r.Ask("s1", "hi")
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1"), Callbacks: true})
	watching.Until("<caught_up>")
	r.Begin("s1", "tool")
	call := watching.Frame("the tool call", func(f *bridgev1.SubscribeResponse) bool { return f.GetCallbackRequested() != nil })
	q := &bridgev1.ResolveRequest{
		SessionId: "s1", CallbackId: call.GetCallbackRequested().GetCallback().GetCallbackId(), RequestId: "once",
		Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}}},
	}
	first, err := r.Callbacks.Resolve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	watching.Frame("the turn's end", func(f *bridgev1.SubscribeResponse) bool { return f.GetTurnEnded() != nil })
	r = r.Restart()
	if again, err := r.Callbacks.Resolve(t.Context(), q); err != nil || !proto.Equal(first, again) {
		t.Errorf("the next life answers %v, %v; it was %v", again, err, first)
	}
	// As if the bridge had ended before it was answered.
	q.RequestId = "interrupted"
	r.Remember("s1", backend.Key{Operation: backend.OpResolve, ID: q.GetRequestId()}, q, []byte{1})
	if again, err := r.Callbacks.Resolve(t.Context(), q); err != nil || again.GetPosition().GetSeq() == 0 {
		t.Errorf("the interrupted one is answered %v, %v", again, err)
	}
	q.RequestId = "late"
	if _, err := r.Callbacks.Resolve(t.Context(), q); err == nil {
		t.Error("another answer is taken too")
	}
}

// A CLI that does not take an answer does not hold who gave it.
func TestAnswerDoesNotHoldItsResponder(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{"an answer": "", "one with an id": "q"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bridgetest.Hanging
			s.Faults = []fakecli.MethodFault{{Method: "session.tools.handlePendingToolCall", Fault: fakecli.Fault{Kind: fakecli.FaultHang}}}
			r := bridgetest.New(t, s)
			r.Create("s1", bridgetest.WithTool)
			watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1"), Callbacks: true})
			r.Begin("s1", "tool")
			id, begin := watching.Callback(), time.Now()
			err := r.Abandon("session.tools.handlePendingToolCall", func(ctx context.Context) error {
				_, err := r.Callbacks.Resolve(ctx, &bridgev1.ResolveRequest{
					SessionId: "s1", CallbackId: id, RequestId: request,
					Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "x"}}}},
				})
				return err
			})
			if fault.ReasonOf(err) != fault.Cancelled || time.Since(begin) > 20*time.Second {
				t.Errorf("who gave it was told %v after %v", err, time.Since(begin))
			}
		})
	}
}
