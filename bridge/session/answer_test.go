package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// dying is a runtime that ends when it receives an answer.
type dying struct {
	*puppet
	gone chan struct{}
}

func (d dying) Ended() <-chan struct{} { return d.gone }

// A default answer whose runtime ended does not reach the successor if its callback has ended meanwhile: the successor's own
// request has its own time.
func TestDefaultAnswerComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := callback.ForEvent(callback.PermissionRequested).AnswerMethod
		next := &puppet{answer: func(method string) (string, error) {
			if method == "session.permissions.pendingRequests" {
				return waitsFor("p1"), nil
			}
			return `{}`, nil
		}}
		first, killed := dying{gone: make(chan struct{})}, make(chan struct{})
		first.puppet = &puppet{answer: func(method string) (string, error) {
			if method == answers {
				<-killed
				return "", fault.New(fault.RuntimeLost, "the runtime ended")
			}
			return `{}`, nil
		}}
		s := onStock(t, &stock{rt: next})
		s.loader.runtime, s.loader.state = first, Loaded
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		s.play("user.message", "")
		s.play(callback.PermissionRequested, permissionAsked)
		time.Sleep(s.loader.timeout + time.Second) // the default answer is on its way
		s.play("abort", "")
		s.play("session.idle", `{"aborted":true}`)
		s.loader.RuntimeLost(first, errors.New("killed"))
		close(killed)
		if _, err := s.loader.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(first.gone)
		synctest.Wait()
		if next.called(answers) || s.callbacks.Registry().Len() != 1 {
			t.Errorf("%d callbacks are pending; calls: %q", s.callbacks.Registry().Len(), next.calls)
		}
	})
}

// The outcome of an answer whose runtime ended follows from the successor's reply.
func TestAnswerTakenAlong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply, history string
		tool           bool // a tool call, otherwise a permission
		earlier        bool // the CLI has accepted another answer, and has lost it
		uncertain      bool // another answer got no reply in time
		want           fault.Reason
		outcome        bridgev1.CallbackOutcome
	}{
		"it waits still":     {reply: `{"success":true}`, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED},
		"it had been given":  {reply: `{"success":false}`, history: `{"type":"permission.completed","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"p1"}}`, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED},
		"an abort ended it":  {reply: `{"success":false}`, history: `{"type":"abort","id":"00000000-0000-4000-8000-000000000002","data":{}},{"type":"permission.completed","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"p1"}}`, want: fault.CallbackResolved, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
		"it was cancelled":   {reply: `{"success":false}`, history: `{"type":"permission.completed","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"p1","result":{"kind":"cancelled"}}}`, want: fault.CallbackResolved, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
		"another was given":  {earlier: true, reply: `{"success":false}`, want: fault.CallbackResolved, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
		"an abort is behind": {reply: `{"success":false}`, tool: true, history: `{"type":"external_tool.completed","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"p1"}},{"type":"abort","id":"00000000-0000-4000-8000-000000000002","data":{}}`, want: fault.CallbackResolved, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
		"another may have been given": {uncertain: true, reply: `{"success":false}`,
			history: `{"type":"permission.completed","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"p1"}}`,
			want:    fault.CallbackResolved, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
		// What the history says of the call ends the callback before the answer.
		"the call has ended": {reply: `{"success":false}`, tool: true, history: `{"type":"external_tool.completed","id":"00000000-0000-4000-8000-000000000001","data":{"requestId":"p1"}},{"type":"tool.execution_complete","id":"00000000-0000-4000-8000-000000000003","data":{"toolCallId":"c1"}},{"type":"abort","id":"00000000-0000-4000-8000-000000000002","data":{}}`, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
		"it waits no longer": {reply: `{"success":false}`, want: fault.CallbackResolved, outcome: bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asks, data, pending := callback.PermissionRequested, permissionAsked, "session.permissions.pendingRequests"
			if test.tool {
				asks, data, pending = callback.ToolRequested, `{"requestId":"p1","toolCallId":"c1","toolName":"t"}`, "session.tools.listPendingRequests"
			}
			answers := callback.ForEvent(asks).AnswerMethod
			var s *Session
			next := &puppet{answer: func(method string) (string, error) {
				switch method {
				case answers:
					return test.reply, nil
				case "session.getMessages":
					return `{"events":[` + test.history + `]}`, nil
				case pending:
					if !test.tool {
						return waitsFor("p1"), nil
					}
				}
				return `{}`, nil
			}}
			first := dying{gone: make(chan struct{})}
			first.puppet = &puppet{answer: func(method string) (string, error) {
				if method != answers {
					return `{}`, nil
				}
				cause := errors.New("killed")
				s.loader.RuntimeLost(first, cause)
				close(first.gone)
				return "", fault.Wrap(cause, fault.RuntimeLost, "the runtime ended")
			}}
			s = onStock(t, &stock{rt: next})
			s.loader.runtime, s.loader.state = first, Loaded
			s.settings.State.Handling.Methods, s.settings.State.Tools = []string{callback.PermissionRequested}, tools("t")
			s.play("user.message", "")
			s.play(asks, data)
			if test.earlier {
				s.play("permission.completed", `{"requestId":"p1"}`)
				s.play(asks, data)
			}
			if test.uncertain {
				p, err := s.callbacks.Registry().Claim("p1")
				if err != nil {
					t.Fatal(err)
				}
				s.callbacks.Registry().Unclaim(p)
			}
			r, err := s.journal.NewReader(s.journal.Last(), true, func() {})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			_, err = resolve(t, s, "p1", callback.Responder{}, answer(`{"result":{"kind":"approve-once"}}`))
			wantReason(t, err, test.want)
			var told []bridgev1.CallbackOutcome
			for records, _ := r.Next(nil, 1<<20); len(records) > 0; records, _ = r.Next(nil, 1<<20) {
				for _, rec := range records {
					if n, ok := rec.Note.(Resolved); ok {
						told = append(told, n.Outcome)
					}
				}
			}
			if len(told) != 1 || told[0] != test.outcome {
				t.Errorf("told %v, want %v once", told, test.outcome)
			}
		})
	}
}

// TestDecisions: the word of an answer for the audit log.
func TestDecisions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"result":{"kind":"approve-once"}}`:        "approve-once",
		`{"result":{"kind":"secret"}}`:              "answer",
		`{"output":{"permissionDecision":"deny"}}`:  "deny",
		`{"result":{"kind":"x"},"action":"accept"}`: "accept",
		`{"error":"x"}`:                             "error",
		`{"approved":true}`:                         "approve",
		`{"approved":false}`:                        "reject",
		`{"answer":"x"}`:                            "answer",
		`{"result":"text"}`:                         "answer",
		`[]`:                                        "answer",
	} {
		if got := decision(callback.Reply{Members: []byte(text)}); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	if got := decision(callback.Reply{Error: &callback.ReplyError{}}); got != "error" {
		t.Errorf("an error is %q", got)
	}
}

// A URL that an answer approves for the session is a setting for the next load: the CLI forgets it, and its event does not tell
// it.
func TestApprovedURLIsRemembered(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]int{"approve-once": 0, "approve-for-session": 1} {
		s := onStock(t, &stock{})
		s.loader.runtime, s.loader.state = &puppet{answer: func(string) (string, error) { return `{"success":true}`, nil }}, Loaded
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		s.play(callback.PermissionRequested, `{"requestId":"p1","permissionRequest":{"kind":"url"},"promptRequest":{"kind":"url"}}`)
		_, err := resolve(t, s, "p1", callback.Responder{}, answer(`{"result":{"kind":"`+kind+`","domain":"example.com"}}`))
		if got := s.settings.State.Settings; err != nil || len(got) != want {
			t.Errorf("%s: %v, settings %v", kind, err, got)
		}
	}
}

// An answer whose runtime has ended fails when its time is over, if the session does not learn of the end by then. The callback
// stays pending.
func TestAnswerWaitsForTheEndInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := onStock(t, &stock{})
		first := dying{gone: make(chan struct{})}
		first.puppet = &puppet{answer: func(string) (string, error) { return "", fault.New(fault.RuntimeLost, "the runtime ended") }}
		s.loader.runtime, s.loader.state = first, Loaded
		s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
		s.play(callback.PermissionRequested, permissionAsked)
		began := time.Now()
		_, err := resolve(t, s, "p1", callback.Responder{}, answer(`{"result":{"kind":"approve-once"}}`))
		wantReason(t, err, fault.RuntimeLost)
		if took := time.Since(began); took != AnswerTimeout || s.callbacks.Registry().Len() != 1 {
			t.Errorf("it failed after %v, %d callbacks are pending", took, s.callbacks.Registry().Len())
		}
	})
}

// An answer on its way ends when the bridge does.
func TestAnswerEndsWithTheBridge(t *testing.T) {
	t.Parallel()
	h := &stock{}
	s := onStock(t, h)
	ctx, stop := context.WithCancel(t.Context())
	h.ctx = ctx
	s.loader.runtime, s.loader.state = &puppet{answer: func(string) (string, error) {
		stop()
		return "", fault.New(fault.RuntimeLost, "the runtime ended")
	}}, Loaded
	s.settings.State.Handling.Methods = []string{callback.PermissionRequested}
	s.play(callback.PermissionRequested, permissionAsked)
	if _, err := resolve(t, s, "p1", callback.Responder{}, answer(`{"result":{"kind":"approve-once"}}`)); !errors.Is(err, async.ErrStopping) {
		t.Errorf("the answer ends with %v", err)
	}
}
