package manage_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// TestDeleteWithoutHistory: what the bridge has of a disconnected session is deleted although the CLI has no files of it.
func TestDeleteWithoutHistory(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*bridgetest.Bridge) *bridgetest.Bridge{
		"in memory":     func(b *bridgetest.Bridge) *bridgetest.Bridge { return b },
		"not in memory": func(b *bridgetest.Bridge) *bridgetest.Bridge { return b.Restart() },
	} {
		b := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
		b.Create("s")
		b.Disconnect("s")
		b = leave(b)
		del := func() error {
			_, err := b.Sessions.DeleteSession(t.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s"})
			return err
		}
		if err := del(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b.Store().Knows(t.Context(), "s") || b.Store().Get(session.Key("", "s")) != nil {
			t.Errorf("%s: the bridge still has the session", name)
		}
		if err := del(); fault.ReasonOf(err) != fault.SessionNotFound {
			t.Errorf("%s: deleted again: %v", name, err)
		}
	}
}
