package e2e

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// unfinished is a session that is unloaded in the middle of something, in two halves.
type unfinished struct {
	name  string
	rules []rule
	// before brings a session so far; after goes on with it once it has been unloaded.
	before func(st *stage, lifetime bridgev1.Lifetime) (s *copilot.Session, after func(st *stage))
}

// allUnfinished are told apart by their words and tools, so that one script has all.
var allUnfinished = []unfinished{
	{"permission", rules(onUser("ask", call("asks", nil)), onResult("asks", say("{{tool_result}}"))), pendingPermission},
	{"tool call", rules(onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}"))), pendingToolCall},
	{"two tool calls", rules(
		onUser("both", call("left", nil), call("right", nil)),
		onResult("right", say("{{tool_result.left}}, {{tool_result.right}}")),
		onResult("left", say("{{tool_result.left}}, {{tool_result.right}}")),
	), twoPendingToolCalls},
	{"nothing", rules(onUser("do", call("does", nil)), onResult("does", say("{{tool_result}}"))), nothingPending},
	{"tool call that is dropped", rules(onUser("drop", call("drops", nil)), onResult("drops", say("dropped"))), droppedToolCall},
}

// TestPendingWorkOfAClientThatLeft: the session was unloaded when its only client left.
func TestPendingWorkOfAClientThatLeft(t *testing.T) {
	t.Parallel()
	for _, u := range allUnfinished {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, u.rules...)
			s, after := u.before(st, bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT)
			frames := st.callbacks(s.ID())
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if c := frames.ended(); c.GetReason() != bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED {
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
	var script []rule
	for _, u := range allUnfinished {
		script = append(script, u.rules...)
	}
	st := newOwnStage(t, hostConfig{}, script...)
	ids := make([]string, len(allUnfinished))
	after := make([]func(*stage), len(allUnfinished))
	for i, u := range allUnfinished {
		var s *copilot.Session
		s, after[i] = u.before(st, bridgev1.Lifetime_LIFETIME_KEEP)
		st.written(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		ids[i] = s.ID()
	}
	st.kill(ids...)
	for i, u := range allUnfinished {
		t.Run(u.name, func(t *testing.T) {
			defer func(outer *testing.T) { st.t = outer }(st.t)
			st.t = t
			after[i](st)
		})
	}
}

// pendingPermission: the next client is asked under the old id, and carries out the tool.
func pendingPermission(st *stage, lifetime bridgev1.Lifetime) (*copilot.Session, func(*stage)) {
	tool := func(text string) copilot.Tool {
		return copilot.NewTool("asks", "Asks", func(context.Context, struct{}) (string, error) { return text, nil })
	}
	asked := make(chan string, 1)
	s := st.create(copilot.SessionOptions{
		Lifetime: lifetime, Tools: []copilot.Tool{tool("by the first")},
		OnPermission: func(ctx context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			asked <- r.CallbackID
			<-ctx.Done()
			return nil, copilot.ErrAbstain
		},
	})
	st.begin(s, "ask")
	id := await(st, asked, "the permission request")
	return s, func(st *stage) {
		again := make(chan string, 1)
		next := st.reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{tool("by the next")},
			OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
				again <- r.CallbackID
				return copilot.ApproveOnce(), nil
			},
		})
		if got := await(st, again, "the permission request again"); got != id {
			st.t.Errorf("the permission has id %q now, was %q", got, id)
		}
		wantEnd(st, next, "by the next")
		wantContinued(st, next, lifetime)
		st.say(next, "and on")
	}
}

// pendingToolCall: the next client carries it out under the old id.
func pendingToolCall(st *stage, lifetime bridgev1.Lifetime) (*copilot.Session, func(*stage)) {
	work := newHold()
	s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{work.tool("works", "")}})
	st.begin(s, "work")
	id := await(st, work.asked, "the tool's call")
	return s, func(st *stage) {
		again := make(chan string, 1)
		next := st.reopen(s.ID(), copilot.SessionOptions{ContinuePendingWork: true, Tools: []copilot.Tool{
			copilot.NewTool("works", "Works", func(ctx context.Context, _ struct{}) (string, error) {
				from, _ := copilot.CallFrom(ctx)
				again <- from.CallbackID
				return "by the next", nil
			}, copilot.SkipPermission()),
		}})
		if got := await(st, again, "the tool's call again"); got != id {
			st.t.Errorf("the call has id %q now, was %q", got, id)
		}
		wantEnd(st, next, "by the next")
		wantContinued(st, next, lifetime)
		st.say(next, "and on")
	}
}

// twoPendingToolCalls: they are answered by hand, the second first.
func twoPendingToolCalls(st *stage, lifetime bridgev1.Lifetime) (*copilot.Session, func(*stage)) {
	work := newHold()
	s := st.create(copilot.SessionOptions{
		Lifetime: lifetime, Tools: []copilot.Tool{work.tool("left", ""), work.tool("right", "")},
	})
	st.begin(s, "both")
	await(st, work.asked, "a tool's call")
	await(st, work.asked, "the other tool's call")
	before := map[string]string{}
	for _, cb := range st.pending(s, 2) {
		before[cb.GetToolCall().GetToolName()] = cb.GetCallbackId()
	}
	return s, func(st *stage) {
		next := st.reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{declared("left"), declared("right")},
		})
		for _, cb := range st.pending(next, 2) {
			if name := cb.GetToolCall().GetToolName(); cb.GetCallbackId() != before[name] {
				st.t.Errorf("the call of %s has id %q now, was %q", name, cb.GetCallbackId(), before[name])
			}
		}
		for _, name := range []string{"right", "left"} {
			answer, _ := copilot.AnswerTool("from the " + name)
			if err := next.Resolve(st.ctx, before[name], answer); err != nil {
				st.t.Fatalf("answer of %s: %v", name, err)
			}
		}
		wantEnd(st, next, "from the left, from the right")
	}
}

// nothingPending: there is nothing to continue, and that is no error.
func nothingPending(st *stage, lifetime bridgev1.Lifetime) (*copilot.Session, func(*stage)) {
	s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{answering("does", "done")}})
	st.say(s, "do")
	return s, func(st *stage) {
		next := st.reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{answering("does", "done again")},
		})
		st.pending(next, 0)
		if now, err := next.Get(st.ctx); err != nil || now.GetTurnRunning() {
			st.t.Errorf("a turn is running: %v, %v", now, err)
		}
		if out := st.say(next, "do"); out.GetText() != "done again" {
			st.t.Errorf("the agent said %q", out.GetText())
		}
		wantContinued(st, next, lifetime)
	}
}

// droppedToolCall: the next client does not continue what was pending. In a session that
// was no longer in use that is over then, and the model hears so.
func droppedToolCall(st *stage, lifetime bridgev1.Lifetime) (*copilot.Session, func(*stage)) {
	work := newHold()
	s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{work.tool("drops", "")}})
	st.begin(s, "drop")
	id := await(st, work.asked, "the tool's call")
	return s, func(st *stage) {
		next := st.reopen(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{answering("drops", "in time")}})
		if lifetime == bridgev1.Lifetime_LIFETIME_KEEP {
			// The session has been open all the time, as far as its clients are concerned.
			if ev := st.first(next, "tool.execution_complete"); !ev.GetEvent().GetToolExecutionComplete().GetSuccess() {
				st.t.Errorf("the call ended as %v", ev)
			}
			return
		}
		answer, _ := copilot.AnswerTool("too late")
		wantReason(st.t, next.Resolve(st.ctx, id, answer), bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
		st.pending(next, 0)
		if now, err := next.Get(st.ctx); err != nil || now.GetTurnRunning() {
			st.t.Errorf("the turn goes on: %v, %v", now, err)
		}
		st.say(next, "something new")
		if told := st.toolResults()["drops"]; told == "" || strings.Contains(told, "in time") {
			st.t.Errorf("of the call the model was told %q", told)
		}
		wantResumed(st, next, false, false)
	}
}

// TestWarmResumeKeepsWhatIsPending: continue_pending_work is about what was unloaded, and
// this session is not.
func TestWarmResumeKeepsWhatIsPending(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
	work := newHold()
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{work.tool("work", "by the first")}})
	turn := st.goSay(s, "work")
	await(st, work.asked, "the tool's call")
	next := st.reopen(s.ID(), copilot.SessionOptions{})
	if now, err := next.Get(st.ctx); err != nil || !now.GetTurnRunning() {
		t.Errorf("the turn does not go on: %v, %v", now, err)
	}
	st.pending(next, 1)
	work.release()
	if out := turn(); out.GetText() != "by the first" {
		t.Errorf("the agent said %q", out.GetText())
	}
	if n := work.calls.Load(); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
	if asked := st.all(s, "external_tool.requested"); len(asked) != 1 {
		t.Errorf("the CLI asked %d times", len(asked))
	}
	wantResumed(st, s, false, true)
}

// written waits until the CLI has written down all that it has told of a session: it does
// so a little later, and what it has not is lost with it. Nobody is told when it has, so
// that one has to look.
func (st *stage) written(s *copilot.Session) {
	st.t.Helper()
	session := &testSession{s, st.rig}
	var told []string
	for ev, err := range s.History(st.ctx, copilot.WithFilter(&bridgev1.EventFilter{ExcludeEphemeral: true, IncludeHeavy: true})) {
		if err != nil {
			st.t.Fatal(err)
		}
		if !ev.GetEvent().GetEphemeral() {
			told = append(told, ev.GetEvent().GetId())
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		// What is written is not counted: the CLI writes events, too, that it tells nobody.
		lacks := map[string]bool{}
		for _, id := range told {
			lacks[id] = true
		}
		for _, one := range session.record() {
			delete(lacks, one.ID)
		}
		if len(lacks) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-st.ctx.Done():
			st.t.Fatalf("the CLI has not written %d of %d events", len(lacks), len(told))
		}
	}
}

// kill kills the CLI, and waits until these sessions' subscribers have been told.
func (st *stage) kill(ids ...string) *bridgev1.RuntimeRestarted {
	st.t.Helper()
	frames := make([]*callbackWatch, len(ids))
	for i, id := range ids {
		frames[i] = st.callbacks(id)
	}
	list, err := st.client.Runtimes().ListRuntimes(st.ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		st.t.Fatal(err)
	}
	i := slices.IndexFunc(list.GetRuntimes(), func(rt *bridgev1.Runtime) bool {
		return rt.GetState() == bridgev1.RuntimeState_RUNTIME_STATE_READY
	})
	if i < 0 {
		st.t.Fatalf("no runtime to kill: %v", list)
	}
	if err := syscall.Kill(int(list.GetRuntimes()[i].GetPid()), syscall.SIGKILL); err != nil {
		st.t.Fatal(err)
	}
	var first *bridgev1.RuntimeRestarted
	for _, f := range frames {
		if r := f.restarted(); first == nil {
			first = r
		}
	}
	return first
}

// begin sends a prompt and does not wait for anything.
func (st *stage) begin(s *copilot.Session, text string) {
	st.t.Helper()
	if _, err := s.Send(st.ctx, text); err != nil {
		st.t.Fatalf("send %q: %v", text, err)
	}
}

// declared is a tool that only Resolve answers for.
func declared(name string) copilot.Tool {
	return copilot.Tool{Definition: &cliv1.ToolDefinition{
		Name: name, Description: "Waits", SkipPermission: proto.Bool(true),
	}}
}

// wantEnd waits for the end of the turn, and checks what the agent said since this client
// came.
func wantEnd(st *stage, s *copilot.Session, text string) {
	st.t.Helper()
	if ev := st.first(s, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != text {
		st.t.Errorf("the agent said %v, want %q", ev, text)
	}
	st.first(s, "session.idle")
}

// wantContinued checks that a session was resumed once. One that its bridge has kept open
// all the time was so in a way that is the CLI's own affair.
func wantContinued(st *stage, s *copilot.Session, lifetime bridgev1.Lifetime) {
	st.t.Helper()
	if lifetime != bridgev1.Lifetime_LIFETIME_KEEP {
		wantResumed(st, s, true, false)
	}
}

// wantResumed checks that a session was resumed once, other than by the bridge itself, and
// what the event says of it.
func wantResumed(st *stage, s *copilot.Session, continued, active bool) {
	st.t.Helper()
	events := slices.DeleteFunc(st.all(s, "session.resume"), func(ev *bridgev1.Event) bool {
		return ev.GetCause() == bridgev1.EventCause_EVENT_CAUSE_BRIDGE
	})
	if len(events) != 1 {
		st.t.Fatalf("there are %d session.resume events, want 1", len(events))
	}
	d := events[0].GetEvent().GetSessionResume()
	if d.GetContinuePendingWork() != continued || d.GetSessionWasActive() != active {
		st.t.Errorf("session.resume says continued %v, active %v, want %v, %v",
			d.GetContinuePendingWork(), d.GetSessionWasActive(), continued, active)
	}
}

// TestUnansweredWorkOfADisconnectedSession cannot be answered before a resume.
func TestUnansweredWorkOfADisconnectedSession(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("work", call("work", nil)))
	work := newHold()
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{work.tool("work", "")}})
	st.begin(s, "work")
	id := await(st, work.asked, "the tool's call")
	if err := s.Disconnect(st.ctx); err != nil {
		t.Fatal(err)
	}
	answer, _ := copilot.AnswerTool("too late")
	err := st.client.Session(s.ID()).Resolve(st.ctx, id, answer)
	wantField(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND, "session_id")
}
