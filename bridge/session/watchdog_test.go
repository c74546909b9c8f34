package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const stalled = bridgev1.TurnStatus_TURN_STATUS_STALLED

// puppet is a runtime whose answers a test gives.
type puppet struct {
	answer  func(method string) (string, error)
	version string // default 1.0.102

	mu    sync.Mutex
	calls []string
}

// Satellite implements Runtime: a puppet takes one connection.
func (p *puppet) Satellite(context.Context, string, Asker) (roster.Satellite, error) {
	return nil, errors.New("a puppet has one connection")
}

func (p *puppet) Call(_ context.Context, method string, _ []byte, _ ...rpcconn.CallOption) (json.RawMessage, error) {
	p.mu.Lock()
	p.calls = append(p.calls, method)
	p.mu.Unlock()
	text := "{}"
	var err error
	if p.answer != nil {
		text, err = p.answer(method)
	}
	return json.RawMessage(text), err
}

func (p *puppet) Start(
	ctx context.Context, method string, params []byte, _ time.Duration, done func(json.RawMessage, error), opts ...rpcconn.CallOption,
) error {
	go func() { done(p.Call(ctx, method, params, opts...)) }()
	return nil
}
func (p *puppet) Route(*Session) error   { return nil }
func (p *puppet) Unroute(*Session)       {}
func (p *puppet) TurnCompleted()         {}
func (p *puppet) Traces() bool           { return false }
func (p *puppet) Version() string        { return cmp.Or(p.version, "1.0.102") }
func (p *puppet) Err() error             { return nil }
func (p *puppet) Ended() <-chan struct{} { return nil }

func (p *puppet) called(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.calls, method)
}

// onPuppet is a session that is loaded in a puppet.
func onPuppet(t *testing.T, p *puppet) *Session {
	s := New(Config{ID: "s1", Host: &fixture{ctx: t.Context()}, Epoch: 7, Bounds: turn.Bounds{
		Stall: 10 * time.Minute, ModelCall: time.Hour, Rest: time.Minute,
	}})
	s.loader.runtime, s.loader.state = p, Loaded
	return s
}

// watched looks after the session as the bridge does, until its turn is over or for the
// given time, and returns after how long that was.
func watched(s *Session, most time.Duration) (took time.Duration, over bool) {
	begin := time.Now()
	for time.Since(begin) < most {
		time.Sleep(time.Second)
		s.watchdog.Check()
		synctest.Wait()
		if !s.turns.Running() {
			return time.Since(begin).Round(time.Minute), true
		}
	}
	return most, false
}

// idleOnAbort is a CLI that ends a turn that is aborted.
func idleOnAbort(s **Session, tasks string) func(string) (string, error) {
	return func(method string) (string, error) {
		switch method {
		case "session.abort":
			(*s).play("abort", "")
			(*s).play("session.idle", `{"aborted":true}`)
		case "session.tasks.list":
			return tasks, nil
		}
		return `{}`, nil
	}
}

func TestTurnsAlwaysEnd(t *testing.T) {
	t.Parallel()
	started := [][2]string{{"user.message", user("m1")}, {"assistant.turn_start", ""}}
	for name, test := range map[string]struct {
		events [][2]string
		tasks  string
		idle   bool          // the CLI says that nothing goes on
		after  time.Duration // 0: it goes on
		want   bridgev1.TurnStatus
		abort  bool
	}{
		"silence":                     {events: started, after: 10 * time.Minute, want: stalled, abort: true},
		"a model that does not":       {events: append(started, [2]string{"model.call_start", ""}), after: time.Hour, want: stalled, abort: true},
		"a model that has":            {events: append(started, [2]string{"model.call_start", ""}, [2]string{"model.call_finished", ""}), after: 10 * time.Minute, want: stalled, abort: true},
		"a tool runs":                 {events: append(started, [2]string{"tool.execution_start", ""})},
		"a tool that the CLI has not": {events: append(started, [2]string{"tool.execution_start", ""}), idle: true, after: 10 * time.Minute, want: stalled, abort: true},
		"a tool has run":              {events: append(started, [2]string{"tool.execution_start", ""}, [2]string{"tool.execution_complete", ""}), after: 10 * time.Minute, want: stalled, abort: true},
		"no idle after the rest":      {events: append(started, [2]string{"assistant.idle", ""}), after: time.Minute, want: completed},
		"no idle after an abort":      {events: append(started, [2]string{"abort", ""}, [2]string{"assistant.idle", ""}), after: time.Minute, want: aborted},
		"no idle after an error":      {events: append(started, [2]string{"session.error", `{"errorType":"query"}`}), after: time.Minute, want: failed},
		"a task goes on in the back":  {events: append(started, [2]string{"assistant.idle", ""}), tasks: `{"tasks":[{"status":"running"}]}`},
		"a task has gone on":          {events: append(started, [2]string{"assistant.idle", ""}), tasks: `{"tasks":[{"status":"completed"}]}`, after: time.Minute, want: completed},
		"a tool when all has come to": {events: append(started, [2]string{"tool.execution_start", ""}, [2]string{"assistant.idle", ""}), after: time.Minute, want: completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var s *Session
				p := &puppet{}
				if test.tasks == "" {
					test.tasks = `{"tasks":[]}`
				}
				idle := idleOnAbort(&s, test.tasks)
				p.answer = func(method string) (string, error) {
					if method == "session.metadata.activity" {
						return fmt.Sprintf(`{"hasActiveWork":%v}`, !test.idle), nil
					}
					return idle(method)
				}
				s = onPuppet(t, p)
				w := s.turns.expect(nil)
				w.accept()
				w.identify("m1")
				for _, e := range test.events {
					s.play(e[0], e[1])
				}
				took, over := watched(s, 3*time.Hour)
				if over != (test.after > 0) || over && took != test.after {
					t.Errorf("over is %v after %v, want %v", over, took, test.after)
				}
				if over && (!w.state.Over() || w.state.Outcome().Status != test.want) {
					t.Errorf("the outcome is %v", w.state.Outcome())
				}
				if got := p.called("session.abort"); got != test.abort {
					t.Errorf("the turn was aborted: %v", got)
				}
			})
		})
	}
}

// A message that was accepted and never taken up ends too.
func TestMessageNeverTakenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		p := &puppet{}
		p.answer = idleOnAbort(&s, `{}`)
		s = onPuppet(t, p)
		w := s.turns.expect(nil)
		w.accept()
		w.identify("m1")
		if took, over := watched(s, time.Hour); !over || took != 10*time.Minute {
			t.Errorf("over is %v after %v", over, took)
		}
		if !w.state.Over() || w.state.Outcome().Status != stalled {
			t.Errorf("the outcome is %v", w.state.Outcome())
		}
	})
}

// A prompt whose turn has ended leaves the outbox also if the CLI's last word on the session is that it has nothing to do.
func TestRestWithoutIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := onPuppet(t, &puppet{answer: func(string) (string, error) { return `{"hasActiveWork":false}`, nil }})
		removed := s.turns.expect(nil) // by the abort, as far as is known
		removed.state.Immediate = true
		s.play("abort", "")
		removed.accept()
		removed.identify("m1")
		done := s.turns.expect(nil)
		n, _, err := s.prompts.add(outbox.Prompt{Params: json.RawMessage(`{"prompt":"p"}`)}, s.journal.Last())
		if err != nil {
			t.Fatal(err)
		}
		s.update(func() { s.prompts.expect(done.state, n) })
		done.accept()
		s.play("user.message", user("m2"))
		s.play("session.idle", "")
		done.identify("m2")
		if _, over := watched(s, time.Hour); !over || !removed.state.Over() || !done.state.Over() {
			t.Errorf("over are %v, %v and %v", over, removed.state.Over(), done.state.Over())
		}
		if left := s.prompts.outbox.Entries(); len(left) > 0 {
			t.Errorf("in the outbox is %+v", left)
		}
	})
}

// A turn that the bridge ends because the agent has come to rest has that outcome for all who ask, also for a reader who comes later
// and if the CLI tells of an abort then.
func TestRestIsToldToAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := onPuppet(t, &puppet{answer: func(string) (string, error) { return `{"hasActiveWork":false}`, nil }})
		s.play("user.message", user("m1"))
		begun := s.journal.Last()
		s.play("assistant.message", `{"content":"done"}`)
		s.play("assistant.turn_end", "")
		s.play("assistant.idle", "")
		end := s.journal.Last()
		if took, over := watched(s, time.Hour); !over || took != time.Minute {
			t.Fatalf("over is %v after %v", over, took)
		}
		s.play("abort", "")
		s.play("session.idle", `{"aborted":true}`)
		var told []turn.Outcome
		for rec := range event.Records(t.Context(), s.journal, begun) {
			if over, is := rec.Note.(TurnOver); is {
				told = append(told, over.Outcome)
			}
		}
		if len(told) != 1 || told[0].Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED || told[0].End != end {
			t.Errorf("a reader is told of the ends %v", told)
		}
		if out := s.turns.OutcomeOf(t.Context(), begun); out.Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED || out.End != end || out.Message == nil {
			t.Errorf("the outcome is %v", out)
		}
	})
}

// Time in which a callback is pending does not count.
func TestCallbackIsPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		p := &puppet{}
		idle := idleOnAbort(&s, `{}`)
		p.answer = func(method string) (string, error) {
			if method == "session.permissions.pendingRequests" && s.callbacks.Registry().Len() > 0 {
				return `{"items":[{"requestId":"c1"}]}`, nil
			}
			return idle(method)
		}
		s = onPuppet(t, p)
		s.play("user.message", "")
		s.callbacks.Registry().Add(&callback.Pending{ID: "c1", Kind: callback.ForEvent(callback.PermissionRequested)}, nil)
		if _, over := watched(s, 2*time.Hour); over {
			t.Fatal("the turn has ended although somebody is asked")
		}
		end(s, "c1")
		if took, over := watched(s, time.Hour); !over || took != 10*time.Minute {
			t.Errorf("over is %v after %v", over, took)
		}
	})
}

// A CLI that does not become idle after an abort loses the session, which is loaded again: otherwise the next
// message would wait forever.
func TestStalledForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &puppet{}
		s := onPuppet(t, p)
		s.play("user.message", "")
		if _, over := watched(s, time.Hour); !over {
			t.Fatal("the turn does not end")
		}
		synctest.Wait()
		if !p.called("session.destroy") || s.loader.State() != Unloaded {
			t.Errorf("the session is in state %v; calls: %q", s.loader.State(), p.calls)
		}
	})
}
