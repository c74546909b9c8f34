package bridge

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// runs makes a Run in a session of its own and returns the session's id and the outcome.
func (r *rig) runs(requestID string, create *bridgev1.CreateSessionRequest) (id string, out *bridgev1.TurnOutcome) {
	r.t.Helper()
	q := &bridgev1.RunRequest{
		RequestId: requestID, Session: &bridgev1.RunRequest_Create{Create: create}, Prompt: &bridgev1.Prompt{Text: "hi"},
	}
	err := r.Run(r.t.Context(), q, func(f frame.Frame) error {
		if m, ok := f.Message.(*bridgev1.RunResponse); ok {
			if m.GetStarted() != nil {
				id = m.GetStarted().GetSessionId()
			}
			if m.GetOutcome() != nil {
				out = m.GetOutcome()
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return id, out
}

// A session that Run made for one turn is gone when the Run returns, here and in the CLI; one
// whose id the caller chose, or that is to live on, is not.
func TestRunDeletesItsSession(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		create *bridgev1.CreateSessionRequest
		kept   bool
	}{
		"made for the turn": {&bridgev1.CreateSessionRequest{}, false},
		"id chosen":         {&bridgev1.CreateSessionRequest{SessionId: "mine"}, true},
		"lives on":          {&bridgev1.CreateSessionRequest{Lifetime: bridgev1.Lifetime_LIFETIME_KEEP}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, fakecli.Script{})
			id, _ := r.runs("", tc.create)
			if got := received(r.cli, "session.delete") > 0; got == tc.kept {
				t.Errorf("session.delete was called: %v", got)
			}
			r.Bridge.mu.Lock()
			_, there := r.sessions["/"+id]
			_, plain := r.sessions[id]
			r.Bridge.mu.Unlock()
			if (there || plain) != tc.kept {
				t.Errorf("the bridge knows the session: %v, want %v", there || plain, tc.kept)
			}
		})
	}
}

// With a request id the session waits for the Run to come again; the end of the bridge is the
// end of the waiting.
func TestRunThatComesAgainFindsItsSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	id, out := r.runs("q", &bridgev1.CreateSessionRequest{})
	again, same := r.runs("q", &bridgev1.CreateSessionRequest{})
	if again != id || same.GetStatus() != out.GetStatus() {
		t.Errorf("again: %q, %v; it was %q, %v", again, same, id, out)
	}
	if received(r.cli, "session.delete") > 0 {
		t.Error("the session was deleted within its grace")
	}
	r.Close()
	if received(r.cli, "session.delete") != 1 {
		t.Error("the session outlives the bridge")
	}
	_, err := r.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: id})
	if fault.ReasonOf(err) != fault.SessionNotFound && fault.ReasonOf(err) != fault.Draining {
		t.Errorf("afterwards: %v", err)
	}
}
