package prompt_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The memory of a deleted session is free, although a repeated call could have asked for one of its turns.
func TestDeletedSessionIsFreed(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	r.Create("s1")
	in := weak.Make(r.Store().Get(session.Key("", "s1")).Session)
	if _, err := r.Turns.SendAndWait(r.Context(), &bridgev1.SendAndWaitRequest{
		RequestId: "q", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Sessions.DeleteSession(r.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	bridgetest.Eventually(t, "the session's memory to be free", func() bool {
		runtime.GC()
		return in.Value() == nil
	})
}
