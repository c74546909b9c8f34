package session

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// The likeliest first failure, a CLI that is not signed in, has the same reason wherever it
// shows, and says what to do.
func TestNotSignedIn(t *testing.T) {
	t.Parallel()
	r := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{})
	made, err := r.Client.Sessions().CreateSession(r.Ctx, &bridgev1.CreateSessionRequest{
		Config: &cliv1.SessionConfig{Model: proto.String("gpt-5"), WorkingDirectory: proto.String(r.Dir)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := made.GetSession(); s.GetUpdateTime().AsTime().Before(s.GetCreateTime().AsTime()) {
		t.Errorf("created %v, updated %v", s.GetCreateTime().AsTime(), s.GetUpdateTime().AsTime())
	}
	out, err := r.Client.Sessions().SendAndWait(r.Ctx, &bridgev1.SendAndWaitRequest{
		SessionId: made.GetSession().GetSessionId(), Prompt: &bridgev1.Prompt{Text: "hello"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "sign in with `copilot login` as the server's user, for sessions of the host's owner"
	failed := out.GetOutcome().GetError()
	if failed.GetReason() != bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN ||
		!strings.Contains(failed.GetMessage(), remedy) {
		t.Errorf("the turn's error is %v", out.GetOutcome())
	}
	_, err = r.Client.Runtimes().ListModels(r.Ctx, &bridgev1.ListModelsRequest{})
	if err == nil || !strings.Contains(err.Error(), remedy) {
		t.Errorf("the models: %v", err)
	}
}
