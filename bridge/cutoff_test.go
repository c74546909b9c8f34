package bridge

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A reader that returns after the end of the bridge receives the end of the interrupted turn exactly once,
// after any number of restarts.
func TestTurnThatABridgesEndCutOff(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(hanging))
	for _, id := range []string{"running", "resting"} {
		r.create(id)
		r.ask(id, "hi")
	}
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("running")})
	watching.until("session.idle")
	r.begin("running", "long")
	seen := watching.frame("the second message", func(f *bridgev1.SubscribeResponse) bool {
		return slices.Contains(words(f), "user.message")
	}).GetResumeAfter()

	after := func(r *keptLife, id string, at *bridgev1.Position) ([]*bridgev1.TurnEnded, *bridgev1.Position) {
		s := r.subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: id, After: at}}})
		defer s.stop()
		return s.ended()
	}
	var told *bridgev1.Position
	for life := range 3 {
		r = r.reborn()
		// The bridge loads the session, because the prompt of the interrupted turn is in the outbox. The
		// results of the load are saved before the next life begins.
		eventually(t, "the load after the restart", func() bool {
			s, err := r.Sessions.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "running"})
			return err == nil && (life > 0 || s.GetSession().GetState() == bridgev1.SessionState_SESSION_STATE_LOADED)
		})
		r.store.SaveDirty()
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
	if out := r.ask("running", "hi"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next turn is %v", out)
	}
	r = r.reborn()
	if ends, _ := after(r, "running", told); ends != nil {
		t.Errorf("after the next turn the old one ends again: %v", ends)
	}
}

// A repeated request returns the outcome of a turn that ended before the restart, also if no reply was sent.
func TestRepeatedSendAndWaitKnowsTheOutcome(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(hanging))
	r.create("s1")
	s, err := r.store.Open(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	before := s.Journal().Last()
	r.ask("s1", "hi")
	_, at, ok := s.Prompts().FindMessage(t.Context(), before, "hi")
	if !ok {
		t.Fatal("the message is not in the journal")
	}
	r = r.reborn()
	if s, err = r.store.Open(t.Context(), "s1"); err != nil {
		t.Fatal(err)
	}
	if out := s.Turns().OutcomeOf(t.Context(), at).Proto(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED || out.GetText() == "" {
		t.Errorf("the outcome is %v", out)
	}
}

// An answer with a request id that comes again, also in the next life, is no second one:
// whether its end was seen or not.
func TestResolveComesAgain(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(hanging))
	r.create("s1", ownTool)
	r.ask("s1", "hi")
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1"), Callbacks: true})
	watching.until("<caught_up>")
	r.begin("s1", "tool")
	call := watching.frame("the tool call", func(f *bridgev1.SubscribeResponse) bool { return f.GetCallbackRequested() != nil })
	q := &bridgev1.ResolveRequest{
		SessionId: "s1", CallbackId: call.GetCallbackRequested().GetCallback().GetCallbackId(), RequestId: "once",
		Answer: &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}}},
	}
	first, err := r.Callbacks.Resolve(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	watching.frame("the turn's end", func(f *bridgev1.SubscribeResponse) bool { return f.GetTurnEnded() != nil })
	r = r.reborn()
	if again, err := r.Callbacks.Resolve(t.Context(), q); err != nil || !proto.Equal(first, again) {
		t.Errorf("the next life answers %v, %v; it was %v", again, err, first)
	}
	// As if the bridge had ended before it was answered.
	q.RequestId = "interrupted"
	r.remembering(idempotency.Key{Operation: idempotency.Resolve, ID: q.GetRequestId()}, q, []byte{1})
	if again, err := r.Callbacks.Resolve(t.Context(), q); err != nil || again.GetPosition().GetSeq() == 0 {
		t.Errorf("the interrupted one is answered %v, %v", again, err)
	}
	q.RequestId = "late"
	if _, err := r.Callbacks.Resolve(t.Context(), q); err == nil {
		t.Error("another answer is taken too")
	}
}
