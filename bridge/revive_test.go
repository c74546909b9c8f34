package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// hanging begins turns that never end, and calls tools.
var hanging = fakecli.Script{Prompts: []fakecli.Prompt{
	{Match: "long", Turns: []fakecli.Turn{{Hang: true}}},
	{Match: "tool", Turns: []fakecli.Turn{{Tools: []fakecli.Tool{{Name: "work"}}}, {Text: "done"}}},
}}

func always(s fakecli.Script) func(int) fakecli.Script {
	return func(int) fakecli.Script { return s }
}

// ownTool gives the session a tool that callers of Resolve answer.
func ownTool(q *bridgev1.CreateSessionRequest) {
	skip := true
	q.Config.Tools = []*cliv1.ToolDefinition{{Name: "work", SkipPermission: &skip}}
}

func (r *rig) begin(id, text string) {
	r.t.Helper()
	if _, err := r.Turns.Send(r.t.Context(), &bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}}); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the prompt in the conversation", func() bool { return slices.Contains(r.conversation(id), text) })
}

func (r *rig) state(id string) bridgev1.SessionState {
	s, err := r.store.Open(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Snapshot().GetState()
}

// When a runtime dies, the bridge loads the sessions that callers wait for. It loads all others when a call
// needs them.
func TestSessionsComeBackByThemselves(t *testing.T) {
	t.Parallel()
	r := newLives(t, always(hanging))
	for _, id := range []string{"running", "asked", "watched", "left"} {
		r.create(id, ownTool)
		r.ask(id, "hi")
	}
	r.begin("running", "long")
	r.begin("asked", "tool")
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("watched")})
	watching.until("<caught_up>")
	asked := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("asked"), Callbacks: true})
	id := asked.frame("the tool call", func(f *bridgev1.SubscribeResponse) bool {
		return len(f.GetStarted().GetPendingCallbacks()) > 0 || f.GetCallbackRequested() != nil
	})
	callback := id.GetCallbackRequested().GetCallback().GetCallbackId()
	if list := id.GetStarted().GetPendingCallbacks(); len(list) > 0 {
		callback = list[0].GetCallbackId()
	}
	r.life().Kill()
	if out := watching.restarted().GetTurnOutcome(); out != nil {
		t.Errorf("the idle session's turn ended as %v", out)
	}
	if out := asked.restarted().GetTurnOutcome(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the running session's turn ended as %v", out)
	}
	for _, id := range []string{"running", "asked", "watched"} {
		eventually(t, "session "+id, func() bool { return r.state(id) == bridgev1.SessionState_SESSION_STATE_LOADED })
	}
	if got := r.state("left"); got != bridgev1.SessionState_SESSION_STATE_UNLOADED {
		t.Errorf("the session that nobody waits for is %v", got)
	}
	if _, err := r.Callbacks.Resolve(t.Context(), &bridgev1.ResolveRequest{SessionId: "asked", CallbackId: callback, Answer: &bridgev1.Answer{
		Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "worked"}}},
	}}); err != nil {
		t.Errorf("the old call is not answerable: %v", err)
	}
	asked.frame("the end of the continued turn", func(f *bridgev1.SubscribeResponse) bool {
		return f.GetTurnEnded().GetOutcome().GetStatus() == bridgev1.TurnStatus_TURN_STATUS_COMPLETED
	})
	r.ask("left", "hi")
	r.ask("running", "hi")
}

// The CLI that takes a session in ends at once, a few times.
func TestRuntimeEndsDuringResume(t *testing.T) {
	t.Parallel()
	for _, deaths := range []int{1, 2} {
		t.Run(fmt.Sprint(deaths), func(t *testing.T) {
			t.Parallel()
			r := newLives(t, func(life int) fakecli.Script {
				s := hanging
				if life > 0 && life <= deaths {
					s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
				}
				return s
			})
			r.create("s1")
			r.ask("s1", "hi")
			r.begin("s1", "long")
			watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
			watching.until("<caught_up>")
			r.life().Kill()
			watching.restarted()
			eventually(t, "the session", func() bool { return r.state("s1") == bridgev1.SessionState_SESSION_STATE_LOADED })
			if n := r.count(); n != deaths+2 {
				t.Errorf("there were %d lives, want %d", n, deaths+2)
			}
			r.ask("s1", "hi")
		})
	}
}

// logged notices that the bridge gave up loading a session. Only the log reports it.
type logged chan struct{}

func (logged) Enabled(context.Context, slog.Level) bool { return true }
func (l logged) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l logged) WithGroup(string) slog.Handler          { return l }

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
	r := newLives(t, func(life int) fakecli.Script {
		s := hanging
		select {
		case <-mended:
		default:
			if life > 0 {
				s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
			}
		}
		return s
	}, func(c *Config) { c.Logger = slog.New(gaveUp) })
	r.create("s1")
	r.ask("s1", "hi")
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	watching.until("<caught_up>")
	r.life().Kill()
	watching.restarted()
	<-gaveUp
	if n := r.count(); n > 1+fleet.ReviveTries {
		t.Errorf("there were %d lives before anybody asked for one, want at most %d", n, 1+fleet.ReviveTries)
	}
	var err error
	eventually(t, "the breaker", func() bool {
		_, err = r.Turns.Send(t.Context(), &bridgev1.SendRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return fault.ReasonOf(err) == fault.CLICrashLoop
	})
	if f, ok := fields.AsFault(err); !ok || f.RetryAfter <= 0 {
		t.Errorf("the error does not say when to try again: %v", err)
	}
	close(mended)
	eventually(t, "the recovery", func() bool {
		_, err := r.Turns.SendAndWait(t.Context(), &bridgev1.SendAndWaitRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return err == nil
	})
}

// A call that waits for its reply when the runtime ends fails with the reason.
func TestCallsOfALostRuntime(t *testing.T) {
	t.Parallel()
	for method, call := range map[string]func(r *lives) error{
		"session.create": func(r *lives) error {
			_, err := r.Sessions.CreateSession(r.t.Context(), &bridgev1.CreateSessionRequest{SessionId: "s2"})
			return err
		},
		"session.log": func(r *lives) error {
			_, err := r.Sessions.WriteLog(r.t.Context(), &bridgev1.WriteLogRequest{SessionId: "s1", Message: "hi"})
			return err
		},
		"session.abort": func(r *lives) error {
			_, err := r.Sessions.Abort(r.t.Context(), &bridgev1.AbortRequest{SessionId: "s1"})
			return err
		},
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			r := newLives(t, func(life int) fakecli.Script {
				s := hanging
				if life == 0 {
					after := 0
					if method == "session.create" {
						after = 1
					}
					s.Faults = []fakecli.MethodFault{{Method: method, After: after, Fault: fakecli.Fault{Kind: fakecli.FaultExit}}}
				}
				return s
			})
			r.create("s1")
			r.ask("s1", "hi")
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
			r := newLives(t, always(hanging))
			r.create("s1")
			r.ask("s1", "hi")
			watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
			watching.until("<caught_up>")
			r.life().Strike(fakecli.Fault{Kind: kind, Bytes: 1 << 40})
			if cause := watching.restarted().GetCause(); cause == "" {
				t.Error("nobody says why")
			}
			r.ask("s1", "and on")
		})
	}
}
