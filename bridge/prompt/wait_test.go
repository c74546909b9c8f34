package prompt_test

import (
	"slices"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
)

// A reader that returns after the end of the bridge receives the end of the interrupted turn exactly once,
// after any number of restarts.
func TestTurnThatABridgesEndCutOff(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	for _, id := range []string{"running", "resting"} {
		r.Create(id)
		r.Ask(id, "hi")
	}
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("running")})
	watching.Until("session.idle")
	r.Begin("running", "long")
	seen := watching.Frame("the second message", func(f *bridgev1.SubscribeResponse) bool {
		return slices.Contains(bridgetest.Kinds(f), "user.message")
	}).GetResumeAfter()

	after := func(r *bridgetest.Bridge, id string, at *bridgev1.Position) ([]*bridgev1.TurnEnded, *bridgev1.Position) {
		s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: id, After: at}}})
		defer s.Stop()
		return ended(s)
	}
	var told *bridgev1.Position
	for life := range 3 {
		r = r.Restart()
		// The bridge loads the session, because the prompt of the interrupted turn is in the outbox. The
		// results of the load are saved before the next life begins.
		bridgetest.Eventually(t, "the load after the restart", func() bool {
			s, err := r.Sessions.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "running"})
			return err == nil && (life > 0 || s.GetSession().GetState() == bridgev1.SessionState_SESSION_STATE_LOADED)
		})
		r.Store().SaveDirty()
		ends, at := after(r, "running", seen)
		if len(ends) != 1 || ends[0].GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
			t.Fatalf("in life %d who comes back is told %v", life, ends)
		}
		if ends, _ := after(r, "running", at); ends != nil {
			t.Errorf("in life %d who knows is told again: %v", life, ends)
		}
		if told != nil {
			if ends, _ := after(r, "running", told); ends != nil {
				t.Errorf("in life %d who knows since the last is told again: %v", life, ends)
			}
		}
		told = at
		if ends, _ := after(r, "resting", nil); ends != nil {
			t.Errorf("in life %d a turn that had ended ends again: %v", life, ends)
		}
	}
	if out := r.Ask("running", "hi"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next turn is %v", out)
	}
	r = r.Restart()
	if ends, _ := after(r, "running", told); ends != nil {
		t.Errorf("after the next turn the old one ends again: %v", ends)
	}
}

// A repeated request returns the outcome of a turn that ended before the restart, also if no reply was sent.
func TestRepeatedSendAndWaitKnowsTheOutcome(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	r.Create("s1")
	s, err := r.Store().Open(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	before := s.Journal().Last()
	r.Ask("s1", "hi")
	_, at, ok := s.Prompts().FindMessage(t.Context(), before, "hi")
	if !ok {
		t.Fatal("the message is not in the journal")
	}
	r = r.Restart()
	if s, err = r.Store().Open(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if out := s.Turns().OutcomeOf(t.Context(), at).Proto(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED || out.GetText() == "" {
		t.Errorf("the outcome is %v", out)
	}
}

// ended returns every TurnEnded of a stream until it has caught up, and the last position.
func ended(s *bridgetest.Stream) (out []*bridgev1.TurnEnded, last *bridgev1.Position) {
	s.Frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
		if f.GetTurnEnded() != nil {
			out = append(out, f.GetTurnEnded())
		}
		last = f.GetResumeAfter()
		return f.GetCaughtUp() != nil
	})
	return out, last
}
