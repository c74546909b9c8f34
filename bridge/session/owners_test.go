package session

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// stock is a host whose runtimes a test gives.
type stock struct {
	*fixture
	rt  Runtime
	err error
}

// Runtime implements Host.
func (h *stock) Runtime(context.Context) (Runtime, error) { return h.rt, h.err }

// onStock is a session that no runtime has.
func onStock(t *testing.T, h *stock) *Session {
	h.fixture = &fixture{ctx: t.Context()}
	s := New(Config{ID: "s1", Host: h, Epoch: 7, Bounds: turn.Bounds{Stall: 10 * time.Minute, ModelCall: time.Hour, Rest: time.Minute}})
	s.loader.state, s.ingester.Known.HasHistory, s.ingester.Known.CompletedTurn = Unloaded, true, true
	return s
}

const permissionAsked = `{"requestId":"p1","permissionRequest":{"kind":"shell"}}`

func waitsFor(ids ...string) string {
	type item struct {
		RequestID string `json:"requestId"`
	}
	items := []item{}
	for _, id := range ids {
		items = append(items, item{id})
	}
	text, _ := json.Marshal(map[string]any{"items": items})
	return string(text)
}

// A callback that the CLI requests while it makes its list is not in the list, and stays pending.
func TestAskedWhileComparing(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]string{
		"in the reply of the list": "session.permissions.pendingRequests",
		"before it":                "session.getMessages",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s *Session
			p := &puppet{}
			p.answer = func(method string) (string, error) {
				if method == begun {
					defer s.play(callback.PermissionRequested, permissionAsked)
				}
				switch method {
				case "session.permissions.pendingRequests":
					if s.callbacks.Registry().Len() > 0 {
						return waitsFor("p1"), nil
					}
					return waitsFor(), nil
				case "session.getMessages":
					return `{"events":[]}`, nil
				}
				return `{}`, nil
			}
			s = onStock(t, &stock{rt: p})
			s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
			if _, err := s.loader.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.callbacks.Registry().Get("p1"); err != nil {
				t.Errorf("what was asked while the session was loaded: %v", err)
			}
		})
	}
}

// The CLI goes on with a turn whose only callback is answered while the session is loaded, and not with one for which it
// does not wait, or that its history lacks, also while an answer is on its way.
func TestAnsweredDuringALoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ inHistory, answered, claimed, refused, ended, want bool }{
		"refused in the history":       {inHistory: true, refused: true, want: true},
		"refused, and ended since":     {inHistory: true, refused: true, ended: true, want: true},
		"answered":                     {inHistory: true, answered: true, want: true},
		"not awaited":                  {inHistory: true},
		"not in the history":           {},
		"not in the history, answered": {claimed: true},
	} {
		var s *Session
		p := &puppet{}
		p.answer = func(method string) (string, error) {
			switch {
			case method == "session.getMessages" && test.inHistory:
				events := `{"type":"permission.requested","id":"00000000-0000-4000-8000-000000000001","data":` +
					`{"requestId":"p1","permissionRequest":{"kind":"shell","toolCallId":"c1"}}}`
				if test.refused {
					events += `,{"type":"permission.completed","id":"00000000-0000-4000-8000-000000000002","data":` +
						`{"requestId":"p1","result":{"kind":"denied-interactively-by-user"}}}`
				}
				if test.ended {
					const end = `{"type":"tool.execution_complete","id":"00000000-0000-4000-8000-000000000003","data":{"toolCallId":"c1"}}`
					events += "," + end
					rec, err := event.Parse([]byte(end))
					if err != nil {
						return "", err
					}
					s.Ingest(rec, time.Now())
				}
				return `{"events":[` + events + `]}`, nil
			case method == "session.permissions.pendingRequests" && test.answered:
				s.play("permission.completed", `{"requestId":"p1"}`)
			}
			return `{}`, nil
		}
		s = onStock(t, &stock{rt: p})
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		s.play(callback.PermissionRequested, permissionAsked) // of a process that has ended
		s.ingester.Known.Interruption.Last = true
		if test.claimed {
			if _, err := s.callbacks.Registry().Claim("p1"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.loader.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if goesOn := s.turns.Running(); goesOn != test.want {
			t.Errorf("%s: the turn runs: %v", name, goesOn)
		}
		if last := s.ingester.Known.Interruption.Last; last != test.inHistory { // it may be interrupted once more
			t.Errorf("%s: the turn is thought to be interrupted: %v", name, last)
		}
	}
}

// A resume that continues nothing withdraws what waited before it, and nothing else.
func TestAskedAfterAResume(t *testing.T) {
	t.Parallel()
	var s *Session
	p := &puppet{}
	p.answer = func(method string) (string, error) {
		switch method {
		case "session.getMessages":
			s.play(callback.PermissionRequested, permissionAsked) // held until it is loaded
			return `{"events":[]}`, nil
		case "sessions.checkInUse":
			return `{"inUse":[]}`, nil
		}
		return `{}`, nil
	}
	s = onStock(t, &stock{rt: p})
	s.loader.state = Disconnected
	s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
	s.callbacks.Registry().Add(&callback.Pending{ID: "old", Kind: callback.ForEvent(callback.PermissionRequested)}, nil)
	if _, err := s.loader.Resume(t.Context(), Opening{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.callbacks.Registry().Get("old"); fault.ReasonOf(err) != fault.CallbackResolved {
		t.Errorf("what waited before the resume: %v", err)
	}
	if _, err := s.callbacks.Registry().Get("p1"); err != nil {
		t.Errorf("what was asked after it: %v", err)
	}
}

// The CLI waits for an answer that the bridge believes to have delivered: callers receive the callback again,
// and the turn continues.
func TestWaitsForWhatIsNotPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		p := &puppet{answer: func(method string) (string, error) {
			switch method {
			case "session.permissions.pendingRequests":
				return waitsFor("p1"), nil
			case "session.tools.listPendingRequests":
				return waitsFor(), nil
			}
			return `{}`, nil
		}}
		s = onPuppet(t, p)
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		for _, e := range [][2]string{{"user.message", ""}, {"tool.execution_start", ""}, {callback.PermissionRequested, permissionAsked}} {
			s.play(e[0], e[1])
		}
		end(s, "p1")
		if _, over := watched(s, 11*time.Minute); over {
			t.Error("the turn was ended although the CLI only waits")
		}
		again, err := s.callbacks.Registry().Get("p1")
		if err != nil {
			t.Fatalf("it is not asked again: %v", err)
		}
		if again.Pos.Seq == 0 || again.Kind.Method != callback.PermissionRequested {
			t.Errorf("it is asked again as %+v", again)
		}
		s.callbacks.finish(again, 0) // its timer is the bubble's
	})
}

// A callback that the CLI does not wait for keeps no turn from ending.
func TestPendingOfNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		p := &puppet{}
		p.answer = idleOnAbort(&s, `{"items":[]}`)
		s = onPuppet(t, p)
		s.play("user.message", "")
		s.callbacks.Registry().Add(&callback.Pending{ID: "c1", Kind: callback.ForEvent(callback.ToolRequested)}, nil)
		if took, over := watched(s, time.Hour); !over || took > 21*time.Minute {
			t.Errorf("over is %v after %v", over, took)
		}
		if n := s.callbacks.Registry().Len(); n > 0 {
			t.Errorf("%d callbacks are pending", n)
		}
	})
}

// givenPrompt is a waiter for a prompt that a CLI has accepted and that must not be sent again.
func givenPrompt(t *testing.T, s *Session, id string) *Waiter {
	t.Helper()
	n, _, err := s.prompts.add(outbox.Prompt{Params: json.RawMessage(`{"prompt":"hi"}`), AskedAt: time.Now()}, s.journal.Appended())
	if err != nil {
		t.Fatal(err)
	}
	w := s.turns.expect(nil)
	s.update(func() { s.prompts.expect(w.state, n) })
	w.accept()
	s.prompts.accepted(n, []string{id}, s.journal.Appended(), func(_, _ bool, err error) {
		if err != nil {
			t.Error(err)
		}
	})
	if err := s.prompts.Edit(t.Context()); err != nil {
		t.Error(err)
	}
	w.identify(id)
	return w
}

// A caller waits for a turn of a session that no call loads.
func TestDesertedWaiters(t *testing.T) {
	t.Parallel()
	history := func(events string) *puppet {
		return &puppet{answer: func(method string) (string, error) {
			if method == "session.getMessages" {
				return `{"events":[` + events + `]}`, nil
			}
			return `{}`, nil
		}}
	}
	for name, test := range map[string]struct {
		host  stock
		state State
		begun bool
		want  fault.Reason // of the outcome's error; "" is none
	}{
		"taken up":                           {host: stock{rt: history("")}, begun: true},
		"in doubt":                           {host: stock{rt: history("")}, want: fault.SendUnconfirmed},
		"in doubt, and in the history":       {host: stock{rt: history(`{"type":"user.message","id":"00000000-0000-4000-8000-000000000001","data":{"messageId":"m1"}}`)}},
		"taken up, and nothing can load":     {host: stock{err: errors.New("no CLI")}, begun: true},
		"in doubt, and nothing can load":     {host: stock{err: errors.New("no CLI")}, want: fault.SendUnconfirmed},
		"of a session that is not in use":    {state: Disconnected, begun: true},
		"of a session that is gone for ever": {state: Deleted, begun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := onStock(t, &test.host)
				if test.state != 0 {
					s.loader.state = test.state
				}
				var w *Waiter
				if test.begun {
					w = s.turns.expect(nil)
					w.accept()
					s.turns.machine.AwaitRest(w.state)
				} else {
					w = givenPrompt(t, s, "m1")
				}
				begin := time.Now()
				for !w.state.Over() && time.Since(begin) < time.Hour {
					time.Sleep(time.Second)
					s.watchdog.Check()
					synctest.Wait()
				}
				if took := time.Since(begin).Round(time.Minute); !w.state.Over() || took != 10*time.Minute {
					t.Fatalf("over is %v after %v", w.state.Over(), took)
				}
				if w.state.Outcome().Status != lost {
					t.Errorf("the outcome is %v", w.state.Outcome())
				}
				wantReason(t, w.state.Outcome().Err, test.want)
			})
		})
	}
}

// A message that comes while a session that has stalled for good is taken out of its runtime
// has an end too.
func TestMessageWhileDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		var w *Waiter
		p := &puppet{answer: func(method string) (string, error) {
			switch method {
			case "session.destroy":
				w = givenPrompt(t, s, "m2")
			case "session.getMessages":
				return `{"events":[]}`, nil
			}
			return `{}`, nil
		}}
		s = onStock(t, &stock{rt: p})
		s.loader.runtime, s.loader.state = p, Loaded
		s.play("user.message", "")
		if _, over := watched(s, 11*time.Minute); !over {
			t.Fatal("the turn does not end")
		}
		synctest.Wait()
		if w == nil || !w.state.Over() {
			t.Fatalf("nobody ends the waiting for the message; calls: %q", p.calls)
		}
		wantReason(t, w.state.Outcome().Err, fault.SendUnconfirmed)
		if !slices.Contains(p.calls, "session.resume") {
			t.Errorf("nobody has looked into the history; calls: %q", p.calls)
		}
	})
}

// A caller's patience with silence is not used up by tools and callbacks.
func TestSilenceDoesNotCountTools(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ begin, end func(s *Session) }{
		"a tool": {
			begin: func(s *Session) { s.play("tool.execution_start", "") },
			end:   func(s *Session) { s.play("tool.execution_complete", "") },
		},
		"a callback": {
			begin: func(s *Session) { s.callbacks.Registry().Add(&callback.Pending{ID: "c1"}, nil) },
			end:   func(s *Session) { end(s, "c1") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := onPuppet(t, &puppet{})
				w := s.turns.expect(nil)
				w.accept()
				test.begin(s)
				over := make(chan turn.Outcome, 1)
				go func() { over <- w.Wait(t.Context(), time.Second) }()
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(over) > 0 {
					t.Fatal("it gave up while there was something to wait for")
				}
				test.end(s)
				begin := time.Now()
				if out := <-over; out.Status != bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT || time.Since(begin) > 2*time.Second {
					t.Errorf("the outcome is %v after %v", out, time.Since(begin))
				}
			})
		})
	}
}

// A tool that the CLI has given up while it had no runtime needs no answer any more, and no
// turn goes on for it; with a CLI that cannot tell what it waits for, too.
func TestToolGivenUp(t *testing.T) {
	t.Parallel()
	const asked = `{"type":"external_tool.requested","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"t1","toolCallId":"c1","toolName":"work"}}`
	const ended = `{"type":"tool.execution_complete","id":"00000000-0000-4000-8000-000000000002","data":{"toolCallId":"c1","success":false}}`
	for name, test := range map[string]struct {
		known   bool // it was pending before
		history string
		waits   bool
	}{
		"it waits":                     {known: true, history: asked, waits: true},
		"it waits, as the history has": {history: asked, waits: true},
		"given up":                     {known: true, history: asked + "," + ended},
		"given up, as the history has": {history: asked + "," + ended},
		"never written":                {known: true, history: ended},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &puppet{answer: func(method string) (string, error) {
				switch method {
				case "session.getMessages":
					return `{"events":[` + test.history + `]}`, nil
				case "session.tools.listPendingRequests":
					return "", fault.New(fault.MethodUnknown, "it is not")
				}
				return waitsFor(), nil
			}}
			s := onStock(t, &stock{rt: p})
			s.settings.State.Tools = tools("work")
			if test.known {
				rec, err := event.Parse([]byte(asked))
				if err != nil {
					t.Fatal(err)
				}
				s.Ingest(rec, time.Now())
			}
			if _, err := s.loader.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := s.callbacks.Registry().Len(); (n > 0) != test.waits || s.turns.Running() != test.waits {
				t.Errorf("%d wait, a turn runs: %v, want %v", n, s.turns.Running(), test.waits)
			}
		})
	}
}

// end ends the callback with an id, which is pending.
func end(s *Session, id string) {
	p, _ := s.callbacks.Registry().Get(id)
	s.callbacks.Registry().Done(p)
}
