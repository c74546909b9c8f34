package attach_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
)

// A participant resumes by its token after a restart of the bridge. It is the same participant, and receives
// its unanswered callbacks again.
func TestParticipantReturnsInTheNextLife(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	r.Create("s1")
	r.Ask("s1", "hi")
	start := &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s1"}, Grace: durationpb.New(time.Hour),
		Tools: []*cliv1.ToolDefinition{{Name: "work", SkipPermission: proto.Bool(true)}},
	}
	attach := func(r *bridgetest.Bridge) (*bridge.Attachment, *bridgev1.AttachStarted, chan *bridgev1.AttachResponse) {
		t.Helper()
		a, err := r.Participants.Attach(t.Context(), start)
		if err != nil {
			t.Fatal(err)
		}
		frames := make(chan *bridgev1.AttachResponse, 1000)
		ctx, stop := context.WithCancel(r.Context())
		t.Cleanup(stop)
		r.Spawn(func() {
			_ = a.Stream(ctx, func(f frame.Frame) error {
				if m, ok := f.Message.(*bridgev1.AttachResponse); ok {
					frames <- proto.Clone(m).(*bridgev1.AttachResponse)
				}
				return nil
			})
			a.Lost()
		})
		return a, (<-frames).GetStarted(), frames
	}
	_, first, _ := attach(r)
	r.Begin("s1", "tool")
	pending := func(r *bridgetest.Bridge) (all []*bridgev1.Callback) {
		list, err := r.Callbacks.ListPending(t.Context(), &bridgev1.ListPendingRequest{SessionId: "s1"})
		if err != nil {
			t.Fatal(err)
		}
		return list.GetCallbacks()
	}
	bridgetest.Eventually(t, "the tool's call", func() bool { return len(pending(r)) == 1 })
	call := pending(r)[0]
	r.Store().SaveDirty() // as it would a moment later
	next := r.Restart()
	start.ParticipantToken = first.GetParticipantToken()
	a, again, _ := attach(next)
	if !again.GetResumed() || again.GetParticipantId() != first.GetParticipantId() {
		t.Errorf("it was %v, and is %v", first, again)
	}
	bridgetest.Eventually(t, "the call to come again", func() bool {
		all := pending(next)
		return len(all) == 1 && all[0].GetCallbackId() == call.GetCallbackId() && slices.Contains(all[0].GetParticipantIds(), first.GetParticipantId())
	})
	done := next.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	answer := &bridgev1.CallbackAnswer{CallbackId: call.GetCallbackId(), Answer: &bridgev1.Answer{
		Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}},
	}}
	if err := a.Handle(t.Context(), &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{Answer: answer}}); err != nil {
		t.Fatal(err)
	}
	done.Until("external_tool.completed")
	// No participant has the other token.
	start.ParticipantToken = "another"
	if _, err := next.Participants.Attach(t.Context(), start); err == nil {
		t.Error("a token that nobody has is taken")
	}
}
