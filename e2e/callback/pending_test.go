package callback

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// unfinished is a session that is unloaded in the middle of something, in two halves.
type unfinished struct {
	name  string
	rules []harness.Rule
	// before brings a session so far; after goes on with it once it has been unloaded.
	before func(st *harness.Scripted, lifetime copilot.Lifetime) (s *copilot.Session, after func(st *harness.Scripted))
}

// allUnfinished differ by their words and tools, so that one script has all.
var allUnfinished = []unfinished{
	{"permission",
		harness.Rules(harness.OnUser("ask", harness.Call("asks", nil)),
			harness.OnResult("asks", harness.Say("{{tool_result}}"))), pendingPermission},
	{"tool call",
		harness.Rules(harness.OnUser("work", harness.Call("works", nil)),
			harness.OnResult("works", harness.Say("{{tool_result}}"))), pendingToolCall},
	{"two tool calls", harness.Rules(
		harness.OnUser("both", harness.Call("left", nil), harness.Call("right", nil)),
		harness.OnResult("right", harness.Say("{{tool_result.left}}, {{tool_result.right}}")),
		harness.OnResult("left", harness.Say("{{tool_result.left}}, {{tool_result.right}}")),
	), twoPendingToolCalls},
	{"nothing",
		harness.Rules(harness.OnUser("do", harness.Call("does", nil)),
			harness.OnResult("does", harness.Say("{{tool_result}}"))), nothingPending},
	{"tool call that is dropped",
		harness.Rules(harness.OnUser("drop", harness.Call("drops", nil)),
			harness.OnResult("drops", harness.Say("dropped"))), droppedToolCall},
}

// TestPendingWorkOfAClientThatLeft: the session was unloaded when its only client left.
func TestPendingWorkOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	for _, u := range allUnfinished {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, u.rules...)
			s, after := u.before(st, copilot.LifetimeEndWithLastParticipant)
			frames := st.Callbacks(s.ID())
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if c := frames.Ended(); c.GetReason() != bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED {
				t.Fatalf("the session ended as %v", c)
			}
			after(st)
		})
	}
}

// TestPendingWorkOfAKilledCLI: one CLI is killed with all of these sessions, whose clients
// are gone before, so that they are not the ones who answer.
func TestPendingWorkOfAKilledCLI(t *testing.T) {
	t.Parallel()
	var script []harness.Rule
	for _, u := range allUnfinished {
		script = append(script, u.rules...)
	}
	st := harness.NewOwnScripted(t, harness.HostConfig{}, script...)
	ids := make([]string, len(allUnfinished))
	after := make([]func(*harness.Scripted), len(allUnfinished))
	for i, u := range allUnfinished {
		var s *copilot.Session
		s, after[i] = u.before(st, copilot.LifetimeKeep)
		st.Written(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		ids[i] = s.ID()
	}
	st.Kill(ids...)
	for i, u := range allUnfinished {
		t.Run(u.name, func(t *testing.T) {
			defer func(outer *testing.T) { st.T = outer }(st.T)
			st.T = t
			after[i](st)
		})
	}
}

// TestWithdrawnWork: a client that opens the session again without its pending work is not asked for it either when the CLI is
// killed after that.
func TestWithdrawnWork(t *testing.T) {
	t.Parallel()
	u := allUnfinished[0]
	st := harness.NewOwnScripted(t, harness.HostConfig{}, append(u.rules, harness.OnUser("and on", harness.Say("on")))...)
	s, _ := u.before(st, copilot.LifetimeEndWithLastParticipant)
	st.Written(s)
	frames := st.Callbacks(s.ID())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	frames.Ended()
	asked := make(chan string, 2)
	next := st.Reopen(s.ID(), copilot.SessionOptions{
		Tools: []copilot.Tool{harness.Answering("asks", "done")},
		OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			asked <- r.CallbackID
			return copilot.ApproveOnce(), nil
		},
	})
	st.Kill(s.ID())
	st.Say(next, "and on") // in the next process
	if len(asked) > 0 {
		t.Errorf("the client was asked for %s", <-asked)
	}
}

// pendingPermission: the next client gets the request under the old id, and carries out the tool.
func pendingPermission(st *harness.Scripted, lifetime copilot.Lifetime) (*copilot.Session, func(*harness.Scripted)) {
	tool := func(text string) copilot.Tool {
		return copilot.NewTool("asks", "Asks", func(context.Context, struct{}) (string, error) { return text, nil })
	}
	asked := make(chan string, 1)
	s := st.Create(copilot.SessionOptions{
		Lifetime: lifetime, Tools: []copilot.Tool{tool("by the first")},
		OnPermission: func(ctx context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			asked <- r.CallbackID
			<-ctx.Done()
			return nil, copilot.ErrAbstain
		},
	})
	st.Begin(s, "ask")
	id := harness.Await(st, asked, "the permission request")
	return s, func(st *harness.Scripted) {
		again := make(chan string, 1)
		next := st.Reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{tool("by the next")},
			OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
				again <- r.CallbackID
				return copilot.ApproveOnce(), nil
			},
		})
		if got := harness.Await(st, again, "the permission request again"); got != id {
			st.T.Errorf("the permission has id %q now, was %q", got, id)
		}
		wantEnd(st, next, "by the next")
		wantContinued(st, next, lifetime)
		st.Say(next, "and on")
	}
}

// pendingToolCall: the next client carries it out under the old id.
func pendingToolCall(st *harness.Scripted, lifetime copilot.Lifetime) (*copilot.Session, func(*harness.Scripted)) {
	work := harness.NewHold()
	s := st.Create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{work.Tool("works", "")}})
	st.Begin(s, "work")
	id := harness.Await(st, work.Asked, "the tool's call")
	return s, func(st *harness.Scripted) {
		again := make(chan string, 1)
		next := st.Reopen(s.ID(), copilot.SessionOptions{ContinuePendingWork: true, Tools: []copilot.Tool{
			copilot.NewTool("works", "Works", func(ctx context.Context, _ struct{}) (string, error) {
				from, _ := copilot.CallFrom(ctx)
				again <- from.CallbackID
				return "by the next", nil
			}, copilot.SkipPermission()),
		}})
		if got := harness.Await(st, again, "the tool's call again"); got != id {
			st.T.Errorf("the call has id %q now, was %q", got, id)
		}
		wantEnd(st, next, "by the next")
		wantContinued(st, next, lifetime)
		st.Say(next, "and on")
	}
}

// twoPendingToolCalls: they are answered by hand, the second first.
func twoPendingToolCalls(st *harness.Scripted, lifetime copilot.Lifetime) (*copilot.Session, func(*harness.Scripted)) {
	work := harness.NewHold()
	s := st.Create(copilot.SessionOptions{
		Lifetime: lifetime, Tools: []copilot.Tool{work.Tool("left", ""), work.Tool("right", "")},
	})
	st.Begin(s, "both")
	harness.Await(st, work.Asked, "a tool's call")
	harness.Await(st, work.Asked, "the other tool's call")
	before := map[string]string{}
	for _, cb := range st.Pending(s, 2) {
		before[cb.GetToolCall().GetToolName()] = cb.GetCallbackId()
	}
	return s, func(st *harness.Scripted) {
		next := st.Reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{harness.Declared("left"), harness.Declared("right")},
		})
		for _, cb := range st.Pending(next, 2) {
			if name := cb.GetToolCall().GetToolName(); cb.GetCallbackId() != before[name] {
				st.T.Errorf("the call of %s has id %q now, was %q", name, cb.GetCallbackId(), before[name])
			}
		}
		for _, name := range []string{"right", "left"} {
			answer, _ := copilot.AnswerTool("from the " + name)
			if err := next.Resolve(st.Ctx, before[name], answer); err != nil {
				st.T.Fatalf("answer of %s: %v", name, err)
			}
		}
		wantEnd(st, next, "from the left, from the right")
	}
}

// nothingPending: there is nothing to continue, and that is no error.
func nothingPending(st *harness.Scripted, lifetime copilot.Lifetime) (*copilot.Session, func(*harness.Scripted)) {
	s := st.Create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{harness.Answering("does", "done")}})
	st.Say(s, "do")
	return s, func(st *harness.Scripted) {
		next := st.Reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{harness.Answering("does", "done again")},
		})
		st.Pending(next, 0)
		if now, err := next.Get(st.Ctx); err != nil || now.Proto.GetTurnRunning() {
			st.T.Errorf("a turn is running: %v, %v", now, err)
		}
		if out := st.Say(next, "do"); out.Text() != "done again" {
			st.T.Errorf("the agent said %q", out.Text())
		}
		wantContinued(st, next, lifetime)
	}
}

// droppedToolCall: the next client does not continue what was pending. In a session that
// was no longer in use that is over then, and the model hears so.
func droppedToolCall(st *harness.Scripted, lifetime copilot.Lifetime) (*copilot.Session, func(*harness.Scripted)) {
	work := harness.NewHold()
	s := st.Create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{work.Tool("drops", "")}})
	st.Begin(s, "drop")
	id := harness.Await(st, work.Asked, "the tool's call")
	return s, func(st *harness.Scripted) {
		next := st.Reopen(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("drops", "in time")}})
		if lifetime == copilot.LifetimeKeep {
			// The session has been open all the time, as far as its clients are concerned.
			if ev := st.First(next, "tool.execution_complete"); !ev.GetEvent().GetToolExecutionComplete().GetSuccess() {
				st.T.Errorf("the call ended as %v", ev)
			}
			return
		}
		answer, _ := copilot.AnswerTool("too late")
		harness.WantReason(st.T, next.Resolve(st.Ctx, id, answer), bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
		st.Pending(next, 0)
		if now, err := next.Get(st.Ctx); err != nil || now.Proto.GetTurnRunning() {
			st.T.Errorf("the turn goes on: %v, %v", now, err)
		}
		st.Say(next, "something new")
		if told := st.ToolResults()["drops"]; told == "" || strings.Contains(told, "in time") {
			st.T.Errorf("of the call the model was told %q", told)
		}
		wantResumed(st, next, false, false)
	}
}

// TestWarmResumeKeepsWhatIsPending: continue_pending_work is about what was unloaded, and
// this session is not.
func TestWarmResumeKeepsWhatIsPending(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("work", harness.Call("work", nil)),
		harness.OnResult("work", harness.Say("{{tool_result}}")))
	work := harness.NewHold()
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{work.Tool("work", "by the first")}})
	turn := st.GoSay(s, "work")
	harness.Await(st, work.Asked, "the tool's call")
	next := st.Reopen(s.ID(), copilot.SessionOptions{})
	if now, err := next.Get(st.Ctx); err != nil || !now.Proto.GetTurnRunning() {
		t.Errorf("the turn does not go on: %v, %v", now, err)
	}
	st.Pending(next, 1)
	work.Release()
	if out := turn(); out.Text() != "by the first" {
		t.Errorf("the agent said %q", out.Text())
	}
	if n := work.Calls.Load(); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
	if asked := st.All(s, "external_tool.requested"); len(asked) != 1 {
		t.Errorf("the CLI asked %d times", len(asked))
	}
	wantResumed(st, s, false, true)
}

// wantEnd waits for the end of the turn, and checks what the agent said since this client
// came.
func wantEnd(st *harness.Scripted, s *copilot.Session, text string) {
	st.T.Helper()
	if ev := st.First(s, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != text {
		st.T.Errorf("the agent said %v, want %q", ev, text)
	}
	st.First(s, "session.idle")
}

// wantContinued checks that a session was resumed once. One that its bridge has kept open
// all the time was so in a way that is the CLI's own affair.
func wantContinued(st *harness.Scripted, s *copilot.Session, lifetime copilot.Lifetime) {
	st.T.Helper()
	if lifetime != copilot.LifetimeKeep {
		wantResumed(st, s, true, false)
	}
}

// wantResumed checks that a session was resumed once, other than by the bridge itself, and
// what the event says of it.
func wantResumed(st *harness.Scripted, s *copilot.Session, continued, active bool) {
	st.T.Helper()
	events := slices.DeleteFunc(st.All(s, "session.resume"), func(ev *bridgev1.Event) bool {
		return ev.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE
	})
	if len(events) != 1 {
		st.T.Fatalf("there are %d session.resume events, want 1", len(events))
	}
	d := events[0].GetEvent().GetSessionResume()
	if d.GetContinuePendingWork() != continued || d.GetSessionWasActive() != active {
		st.T.Errorf("session.resume says continued %v, active %v, want %v, %v",
			d.GetContinuePendingWork(), d.GetSessionWasActive(), continued, active)
	}
}

// TestUnansweredWorkOfADisconnectedSession cannot be answered before a resume.
func TestUnansweredWorkOfADisconnectedSession(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("work", harness.Call("work", nil)))
	work := harness.NewHold()
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{work.Tool("work", "")}})
	st.Begin(s, "work")
	id := harness.Await(st, work.Asked, "the tool's call")
	if err := s.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
	answer, _ := copilot.AnswerTool("too late")
	err := st.Client.Session(s.ID()).Resolve(st.Ctx, id, answer)
	harness.WantField(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND, "session_id")
}
