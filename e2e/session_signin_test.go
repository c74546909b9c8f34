package e2e

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The likeliest first failure, a CLI that is not signed in, has the same reason wherever it
// shows, and says what to do.
func TestNotSignedIn(t *testing.T) {
	t.Parallel()
	r := newOwnRig(t, echo, hostConfig{})
	made, err := r.client.Sessions().CreateSession(r.ctx, &bridgev1.CreateSessionRequest{
		Config: &cliv1.SessionConfig{Model: proto.String("gpt-5"), WorkingDirectory: proto.String(r.dir)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := made.GetSession(); s.GetUpdateTime().AsTime().Before(s.GetCreateTime().AsTime()) {
		t.Errorf("created %v, updated %v", s.GetCreateTime().AsTime(), s.GetUpdateTime().AsTime())
	}
	out, err := r.client.Sessions().SendAndWait(r.ctx, &bridgev1.SendAndWaitRequest{
		SessionId: made.GetSession().GetSessionId(), Prompt: &bridgev1.Prompt{Text: "hello"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "sign in with `copilot login`"
	failed := out.GetOutcome().GetError()
	if failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN || !strings.Contains(failed.GetMessage(), remedy) {
		t.Errorf("the turn's error is %v", out.GetOutcome())
	}
	_, err = r.client.Runtimes().ListModels(r.ctx, &bridgev1.ListModelsRequest{})
	if err == nil || !strings.Contains(err.Error(), remedy) {
		t.Errorf("the models: %v", err)
	}
}
