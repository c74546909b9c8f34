package prompt_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// runs makes a Run in a new session and returns the session's id and the outcome.
func runs(r *bridgetest.Bridge, requestID string, create *bridgev1.CreateSessionRequest) (id string, out *bridgev1.TurnOutcome) {
	r.T.Helper()
	q := &bridgev1.RunRequest{
		RequestId: requestID, Session: &bridgev1.RunRequest_Create{Create: create}, Prompt: &bridgev1.Prompt{Text: "hi"},
	}
	err := r.Turns.Run(r.T.Context(), q, func(f frame.Frame) error {
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
		r.T.Fatal(err)
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
			r := bridgetest.New(t, fakecli.Script{})
			id, _ := runs(r, "", tc.create)
			if got := bridgetest.Received(r.FakeCLI(), "session.delete") > 0; got == tc.kept {
				t.Errorf("session.delete was called: %v", got)
			}
			if there := r.Store().Get(session.Key("", id)) != nil; there != tc.kept {
				t.Errorf("the bridge knows the session: %v, want %v", there, tc.kept)
			}
		})
	}
}

// With a request id the session waits for the Run to come again; the end of the bridge is the
// end of the waiting.
func TestRunThatComesAgainFindsItsSession(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	id, out := runs(r, "q", &bridgev1.CreateSessionRequest{})
	again, same := runs(r, "q", &bridgev1.CreateSessionRequest{})
	if again != id || same.GetStatus() != out.GetStatus() {
		t.Errorf("again: %q, %v; it was %q, %v", again, same, id, out)
	}
	if bridgetest.Received(r.FakeCLI(), "session.delete") > 0 {
		t.Error("the session was deleted within its grace")
	}
	r.Close()
	if bridgetest.Received(r.FakeCLI(), "session.delete") != 1 {
		t.Error("the session outlives the bridge")
	}
	_, err := r.Sessions.GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: id})
	if fault.ReasonOf(err) != fault.SessionNotFound && fault.ReasonOf(err) != fault.Draining {
		t.Errorf("afterwards: %v", err)
	}
}

// A Run comes again after the bridge was killed: it finds how its turn ended, whether that was
// before the kill or by it, and the session that was made for it goes.
func TestRunThatComesAgainAfterARestart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prompt string
		create *bridgev1.CreateSessionRequest // nil: a session that there is
		status bridgev1.TurnStatus
	}{
		"ended, made for it":   {"hi", &bridgev1.CreateSessionRequest{}, bridgev1.TurnStatus_TURN_STATUS_COMPLETED},
		"ended":                {"hi", nil, bridgev1.TurnStatus_TURN_STATUS_COMPLETED},
		"running, made for it": {"long", &bridgev1.CreateSessionRequest{}, bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST},
		"running":              {"long", nil, bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
			q := &bridgev1.RunRequest{RequestId: "q", Prompt: &bridgev1.Prompt{Text: tc.prompt}, Session: &bridgev1.RunRequest_Create{Create: tc.create}}
			if tc.create == nil {
				k.Create("s1")
				k.Ask("s1", "hi")
				q.Session = &bridgev1.RunRequest_SessionId{SessionId: "s1"}
			}
			first := reruns(k.T.Context(), k, q, tc.prompt == "long")
			for range 2 {
				k = k.Restart()
				again := reruns(k.T.Context(), k, q, false)
				if again.id != first.id || again.message != first.message || again.messages != 1 || again.out.GetStatus() != tc.status {
					t.Errorf("again: %+v; it was %+v", again, first)
				}
			}
		})
	}
}

// A Run whose start a kill kept from being recorded is not made twice.
func TestInterruptedRun(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	k.Create("s1")
	k.Ask("s1", "hi")
	q := &bridgev1.RunRequest{RequestId: "q", Prompt: &bridgev1.Prompt{Text: "again"}, Session: &bridgev1.RunRequest_SessionId{SessionId: "s1"}}
	s, err := k.Store().Open(t.Context(), "s1")
	if err != nil {
		t.Fatal(err)
	}
	at := s.Journal().Last()
	since := binary.AppendUvarint(binary.AppendUvarint(nil, at.Epoch), at.Seq)
	k.Remember("s1", backend.Key{Operation: backend.OpRun, ID: "q"}, q, since)
	k.Ask("s1", "again") // the prompt of the Run
	if again := reruns(t.Context(), k, q, false); again.messages != 1 || again.out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("again: %+v", again)
	}
	if n := bridgetest.Received(k.FakeCLI(), "session.send"); n != 2 {
		t.Errorf("the CLI was given %d prompts, want 2", n)
	}
}

// rerun is what a Run streamed.
type rerun struct {
	id, message string
	messages    int // user messages among its events
	out         *bridgev1.TurnOutcome
}

// reruns makes a Run; with cut it leaves when the prompt's message has come.
func reruns(ctx context.Context, r *bridgetest.Bridge, q *bridgev1.RunRequest, cut bool) (got rerun) {
	r.T.Helper()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	err := r.Turns.Run(ctx, q, func(f frame.Frame) error {
		m, ok := f.Message.(*bridgev1.RunResponse)
		switch {
		case ok && m.GetStarted() != nil:
			got.id, got.message = m.GetStarted().GetSessionId(), m.GetStarted().GetMessageId()
		case ok && m.GetOutcome() != nil:
			got.out = m.GetOutcome()
		case len(f.Wire) > 0:
			m := &bridgev1.SubscribeResponse{}
			if err := proto.Unmarshal(slices.Concat(f.Wire...), m); err != nil {
				return err
			}
			if slices.Contains(bridgetest.Kinds(m), "user.message") {
				if got.messages++; cut {
					leave()
				}
			}
		}
		return nil
	})
	if err != nil && !cut {
		r.T.Fatal(err)
	}
	return got
}

// A Run that has to wait for the CLI says so in its first frame, and only once: also with a request id, when another
// goroutine starts the turn. The next Run does not wait.
func TestRunReportsProgress(t *testing.T) {
	t.Parallel()
	for name, requestID := range map[string]string{"plain": "", "with a request id": "once"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, fakecli.Script{})
			for _, want := range []bool{true, false} { // the second one finds the CLI running
				var progress, frames int
				q := &bridgev1.RunRequest{
					Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{}},
					Prompt:  &bridgev1.Prompt{Text: "hi"},
				}
				if requestID != "" {
					q.RequestId = fmt.Sprint(requestID, want)
				}
				err := r.Turns.Run(t.Context(), q, func(f frame.Frame) error {
					if m, ok := f.Message.(*bridgev1.RunResponse); ok && m.GetProgress() != nil {
						if progress++; frames > 0 {
							t.Errorf("progress after %d frames", frames)
						}
					}
					frames++
					return nil
				})
				if err != nil || (progress == 1) != want || progress > 1 {
					t.Errorf("%d frames of progress of %d, %v, want some: %v", progress, frames, err, want)
				}
			}
		})
	}
}
