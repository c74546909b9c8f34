package fleet_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func state(r *bridgetest.Bridge, id string) bridgev1.SessionState {
	s, err := r.Store().Open(r.T.Context(), id)
	if err != nil {
		r.T.Fatal(err)
	}
	return s.Snapshot().GetState()
}

// When a runtime dies, the bridge loads the sessions that callers wait for. It loads all others when a call
// needs them.
func TestSessionsComeBackByThemselves(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts)
	for _, id := range []string{"running", "asked", "watched", "left"} {
		r.Create(id, bridgetest.WithTool)
		r.Ask(id, "hi")
	}
	r.Begin("running", "long")
	r.Begin("asked", "tool")
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("watched")})
	watching.Until("<caught_up>")
	asked := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("asked"), Callbacks: true})
	id := asked.Frame("the tool call", func(f *bridgev1.SubscribeResponse) bool {
		return len(f.GetStarted().GetPendingCallbacks()) > 0 || f.GetCallbackRequested() != nil
	})
	callback := id.GetCallbackRequested().GetCallback().GetCallbackId()
	if list := id.GetStarted().GetPendingCallbacks(); len(list) > 0 {
		callback = list[0].GetCallbackId()
	}
	r.FakeCLI().Kill()
	if out := watching.Restarted().GetTurnOutcome(); out != nil {
		t.Errorf("the idle session's turn ended as %v", out)
	}
	if out := asked.Restarted().GetTurnOutcome(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the running session's turn ended as %v", out)
	}
	for _, id := range []string{"running", "asked", "watched"} {
		bridgetest.Eventually(t, "session "+id, func() bool { return state(r, id) == bridgev1.SessionState_SESSION_STATE_LOADED })
	}
	if got := state(r, "left"); got != bridgev1.SessionState_SESSION_STATE_UNLOADED {
		t.Errorf("the session that nobody waits for is %v", got)
	}
	if _, err := r.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{SessionId: "asked", CallbackId: callback, Answer: &bridgev1.Answer{
		Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}},
	}}); err != nil {
		t.Errorf("the old call is not answerable: %v", err)
	}
	asked.Frame("the end of the continued turn", func(f *bridgev1.SubscribeResponse) bool {
		return f.GetTurnEnded().GetOutcome().GetStatus() == bridgev1.TurnStatus_TURN_STATUS_COMPLETED
	})
	r.Ask("left", "hi")
	r.Ask("running", "hi")
}

// The CLI that takes a session in ends at once, a few times.
func TestRuntimeEndsDuringResume(t *testing.T) {
	t.Parallel()
	for _, deaths := range []int{1, 2} {
		t.Run(fmt.Sprint(deaths), func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
				s := bridgetest.Hanging
				if life > 0 && life <= deaths {
					s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
				}
				return s
			}))
			r.Create("s1")
			r.Ask("s1", "hi")
			r.Begin("s1", "long")
			watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
			watching.Until("<caught_up>")
			r.FakeCLI().Kill()
			watching.Restarted()
			bridgetest.Eventually(t, "the session", func() bool { return state(r, "s1") == bridgev1.SessionState_SESSION_STATE_LOADED })
			if n := len(r.Processes()); n != deaths+2 {
				t.Errorf("there were %d lives, want %d", n, deaths+2)
			}
			r.Ask("s1", "hi")
		})
	}
}

// logged notices that the bridge gave up loading a session. Only the log reports it.
type logged chan struct{}

func (logged) Enabled(context.Context, slog.Level) bool { return true }

func (l logged) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l logged) WithGroup(string) slog.Handler { return l }

func (l logged) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "loading a session after the end of its runtime failed") {
		select {
		case l <- struct{}{}:
		default:
		}
	}
	return nil
}

// A session that ends every CLI process that loads it is not loaded again without a caller. The caller receives
// the reason. Once the CLI works again, so does the session.
func TestCrashLoop(t *testing.T) {
	t.Parallel()
	mended, gaveUp := make(chan struct{}), make(logged, 1)
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
		s := bridgetest.Hanging
		select {
		case <-mended:
		default:
			if life > 0 {
				s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
			}
		}
		return s
	}), func(c *bridgetest.Options) { c.Logger = slog.New(gaveUp) })
	r.Create("s1")
	r.Ask("s1", "hi")
	watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	watching.Until("<caught_up>")
	r.FakeCLI().Kill()
	watching.Restarted()
	<-gaveUp
	if n := len(r.Processes()); n > 1+fleet.ReviveTries {
		t.Errorf("there were %d lives before anybody asked for one, want at most %d", n, 1+fleet.ReviveTries)
	}
	var err error
	bridgetest.Eventually(t, "the breaker", func() bool {
		_, err = r.Turns.Send(t.Context(), &bridgev1.SendRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return fault.ReasonOf(err) == fault.CLICrashLoop
	})
	if f, ok := fields.AsFault(err); !ok || f.RetryAfter <= 0 {
		t.Errorf("the error does not say when to try again: %v", err)
	}
	close(mended)
	bridgetest.Eventually(t, "the recovery", func() bool {
		_, err := r.Turns.SendAndWait(t.Context(), &bridgev1.SendAndWaitRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return err == nil
	})
}

// A call that waits for its reply when the runtime ends fails with the reason.
func TestCallsOfALostRuntime(t *testing.T) {
	t.Parallel()
	for method, call := range map[string]func(r *bridgetest.Bridge) error{
		"session.create": func(r *bridgetest.Bridge) error {
			_, err := r.Sessions.CreateSession(r.T.Context(), &bridgev1.CreateSessionRequest{SessionId: "s2"})
			return err
		},
		"session.log": func(r *bridgetest.Bridge) error {
			_, err := r.Sessions.WriteLog(r.T.Context(), &bridgev1.WriteLogRequest{SessionId: "s1", Message: "hi"})
			return err
		},
		"session.abort": func(r *bridgetest.Bridge) error {
			_, err := r.Sessions.Abort(r.T.Context(), &bridgev1.AbortRequest{SessionId: "s1"})
			return err
		},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, fakecli.Script{}, bridgetest.Scripts(func(life int) fakecli.Script {
				s := bridgetest.Hanging
				if life == 0 {
					after := 0
					if method == "session.create" {
						after = 1
					}
					s.Faults = []fakecli.MethodFault{{Method: method, After: after, Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
				}
				return s
			}))
			r.Create("s1")
			r.Ask("s1", "hi")
			want := fault.RuntimeLost
			if method == "session.abort" {
				want = fault.None // the session's next runtime may continue the turn, and is asked again
			}
			if got := fault.ReasonOf(call(r)); got != want {
				t.Errorf("the reason is %q", got)
			}
			if err := call(r); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// A violation of the protocol ends the runtime, and its sessions are loaded again.
func TestGarbage(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{fakecli.FaultGarbage, fakecli.FaultHalfFrame, fakecli.FaultHugeHeader, fakecli.FaultClose} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Restarts)
			r.Create("s1")
			r.Ask("s1", "hi")
			watching := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
			watching.Until("<caught_up>")
			r.FakeCLI().Strike(fakecli.Fault{Kind: kind, Bytes: 1 << 40})
			if cause := watching.Restarted().GetCause(); cause == "" {
				t.Error("nobody says why")
			}
			r.Ask("s1", "and on")
		})
	}
}
