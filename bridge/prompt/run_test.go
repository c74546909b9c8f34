package prompt_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func noFrames(frame.Frame) error { return nil }

// A request with an id is carried out to its end when its caller goes away in the middle: the
// next who comes with the id finds what became of it, and nothing is done twice.
func TestRequestsAreCarriedOutWhole(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method string
		call   func(ctx context.Context, r *bridgetest.Bridge) (string, error)
	}{
		"create": {"session.create", func(ctx context.Context, r *bridgetest.Bridge) (string, error) {
			out, err := r.Sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{RequestId: "q"})
			return out.GetSession().GetSessionId(), err
		}},
		"send": {"session.send", func(ctx context.Context, r *bridgetest.Bridge) (string, error) {
			out, err := r.Turns.Send(ctx, &bridgev1.SendRequest{RequestId: "q", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"}})
			return out.GetMessageId(), err
		}},
		"send and wait": {"session.send", func(ctx context.Context, r *bridgetest.Bridge) (string, error) {
			out, err := r.Turns.SendAndWait(ctx, &bridgev1.SendAndWaitRequest{RequestId: "q", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"}})
			if err == nil && out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
				r.T.Errorf("the outcome is %v", out.GetOutcome())
			}
			return out.GetMessageId(), err
		}},
		"run": {"session.send", func(ctx context.Context, r *bridgetest.Bridge) (id string, err error) {
			q := &bridgev1.RunRequest{RequestId: "q", Session: &bridgev1.RunRequest_SessionId{SessionId: "s1"}, Prompt: &bridgev1.Prompt{Text: "hi"}}
			err = r.Turns.Run(ctx, q, func(f frame.Frame) error {
				if m, ok := f.Message.(*bridgev1.RunResponse); ok && m.GetStarted() != nil {
					id = m.GetStarted().GetMessageId()
				}
				return nil
			})
			return id, err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := 0
			if test.method == "session.create" {
				after = 1 // that of the session
			}
			r := bridgetest.New(t, fakecli.Script{Faults: []fakecli.MethodFault{{
				Method: test.method, After: after, Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 500},
			}}})
			r.Create("s1")
			before := bridgetest.Received(r.FakeCLI(), test.method)
			err := r.Abandon(test.method, func(ctx context.Context) error {
				_, err := test.call(ctx, r)
				return err
			})
			if fault.ReasonOf(err) != fault.Cancelled {
				t.Errorf("who went away was told %v", err)
			}
			first, err := test.call(t.Context(), r)
			if err != nil || first == "" {
				t.Fatalf("the next got %q, %v", first, err)
			}
			if again, err := test.call(t.Context(), r); err != nil || again != first {
				t.Errorf("the third got %q, %v; the second %q", again, err, first)
			}
			if n := bridgetest.Received(r.FakeCLI(), test.method) - before; n != 1 {
				t.Errorf("the CLI was asked %d times", n)
			}
		})
	}
}

// A wait can be cancelled and repeated; the message is sent once.
func TestWaitingIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging)
	r.Create("s1")
	q := &bridgev1.SendAndWaitRequest{RequestId: "q", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "long"}}
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := r.Turns.SendAndWait(ctx, q)
		left <- err
	}()
	watching.Until("assistant.turn_start")
	leave()
	if err := <-left; fault.ReasonOf(err) != fault.Cancelled {
		t.Errorf("who went away was told %v", err)
	}
	back := make(chan *bridgev1.SendAndWaitResponse, 1)
	go func() {
		out, err := r.Turns.SendAndWait(t.Context(), q)
		if err != nil {
			t.Error(err)
		}
		back <- out
	}()
	if _, err := r.Sessions.Abort(t.Context(), &bridgev1.AbortRequest{SessionId: "s1"}); err != nil {
		t.Fatal(err)
	}
	out := <-back
	if out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_ABORTED {
		t.Errorf("who came back was told %v", out)
	}
	if again, err := r.Turns.SendAndWait(t.Context(), q); err != nil || again.GetMessageId() != out.GetMessageId() || again.GetOutcome().GetStatus() != out.GetOutcome().GetStatus() {
		t.Errorf("once more: %v, %v; it was %v", again, err, out)
	}
	if n := bridgetest.Received(r.FakeCLI(), "session.send"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}

// A Run whose server stops says so: it has no outcome.
func TestRunOfAServerThatStops(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging)
	r.Create("s1")
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	over := make(chan error, 1)
	go func() {
		over <- r.Turns.Run(t.Context(), &bridgev1.RunRequest{
			Session: &bridgev1.RunRequest_SessionId{SessionId: "s1"}, Prompt: &bridgev1.Prompt{Text: "long"},
		}, noFrames)
	}()
	watching.Until("assistant.turn_start")
	r.Drain(time.Millisecond)
	if err := <-over; fault.ReasonOf(err) != fault.Draining {
		t.Errorf("the Run ended with %v", err)
	}
}

// The outcome of a send during which the runtime ended is unknown while the history cannot be read. A repeated
// request does not send the message again before the outcome is known.
func TestSendStaysInDoubt(t *testing.T) {
	t.Parallel()
	var readable atomic.Bool
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
		var s fakecli.Script
		switch {
		case life == 0:
			s.Faults = []fakecli.MethodFault{{Method: "session.send", After: 1, Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
		case !readable.Load():
			s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
		}
		return s
	}))
	r.Create("s1")
	r.Ask("s1", "hi")
	q := &bridgev1.SendRequest{RequestId: "q", SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "on"}}
	if _, err := r.Turns.Send(t.Context(), q); fault.ReasonOf(err) != fault.SendUnconfirmed || !errors.Is(err, session.ErrUnsettled) {
		t.Fatalf("the history cannot be read, and the send fails with %v", err)
	}
	if _, err := r.Turns.Send(t.Context(), q); err == nil {
		t.Fatal("it is said again while nobody knows whether it was said before")
	}
	readable.Store(true)
	var err error
	bridgetest.Eventually(t, "the history", func() bool {
		_, err = r.Turns.Send(t.Context(), q)
		return err == nil || fault.ReasonOf(err) == fault.SendUnconfirmed && !errors.Is(err, session.ErrUnsettled)
	})
	if fault.ReasonOf(err) != fault.SendUnconfirmed {
		t.Errorf("the history does not contain it, and the repeat ends with %v", err)
	}
	if _, err := r.Turns.Send(t.Context(), q); err != nil {
		t.Errorf("now that it is known, it can be said: %v", err)
	}
	if n := bridgetest.Received(r.FakeCLI(), "session.send"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
}
