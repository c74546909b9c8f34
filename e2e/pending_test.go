package e2e

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// endings are the ways in which a session with pending work is unloaded. In the first its
// only client leaves; in the second the CLI is killed.
var endings = map[string]struct {
	own bool
	end func(st *stage, s *copilot.Session)
}{
	"client leaves": {end: func(st *stage, s *copilot.Session) {
		st.t.Helper()
		frames := st.callbacks(s.ID())
		if err := s.Close(); err != nil {
			st.t.Fatal(err)
		}
		if c := frames.ended(); c.GetReason() != bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED {
			st.t.Fatalf("the session ended as %v", c)
		}
	}},
	"CLI is killed": {own: true, end: func(st *stage, s *copilot.Session) {
		st.t.Helper()
		// The client is gone before the CLI, and must not be the one who answers.
		if err := s.Close(); err != nil {
			st.t.Fatal(err)
		}
		st.kill(s.ID())
	}},
}

// kill kills the CLI that has a session.
func (st *stage) kill(id string) *bridgev1.RuntimeRestarted {
	st.t.Helper()
	frames := st.callbacks(id)
	runtimes, err := st.client.Runtimes().ListRuntimes(st.ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		st.t.Fatal(err)
	}
	for _, rt := range runtimes.GetRuntimes() {
		if rt.GetState() == bridgev1.RuntimeState_RUNTIME_STATE_READY {
			if err := syscall.Kill(int(rt.GetPid()), syscall.SIGKILL); err != nil {
				st.t.Fatalf("kill %d: %v", rt.GetPid(), err)
			}
			return frames.restarted()
		}
	}
	st.t.Fatalf("no runtime to kill: %v", runtimes)
	return nil
}

// eachEnding runs a test for each way in which a session is unloaded.
func eachEnding(t *testing.T, test func(t *testing.T, newStage stageMaker, lifetime bridgev1.Lifetime, end func(*stage, *copilot.Session))) {
	t.Helper()
	for name, ending := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if ending.own {
				own := func(t *testing.T, rules ...rule) *stage { return newOwnStage(t, hostConfig{}, rules...) }
				test(t, own, bridgev1.Lifetime_LIFETIME_KEEP, ending.end)
				return
			}
			test(t, newStage, bridgev1.Lifetime_LIFETIME_END_WITH_LAST_PARTICIPANT, ending.end)
		})
	}
}

// blocking is a tool that begins and does not end by itself.
func blocking(name string, begun chan<- string) copilot.Tool {
	return copilot.NewTool(name, "Blocks", func(ctx context.Context, _ struct{}) (string, error) {
		from, _ := copilot.CallFrom(ctx)
		begun <- from.CallbackID
		<-ctx.Done()
		return "", ctx.Err()
	}, copilot.SkipPermission())
}

// TestPendingPermissionIsContinued: a permission is pending when its client is gone; the
// next one resumes, answers it under its old id, and carries out the tool.
func TestPendingPermissionIsContinued(t *testing.T) {
	t.Parallel()
	eachEnding(t, func(t *testing.T, newStage stageMaker, lifetime bridgev1.Lifetime, end func(*stage, *copilot.Session)) {
		st := newStage(t, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
		tool := func(text string) copilot.Tool {
			return copilot.NewTool("work", "Works", func(context.Context, struct{}) (string, error) { return text, nil })
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
		if _, err := s.Send(st.ctx, "work"); err != nil {
			t.Fatal(err)
		}
		id := await(st, asked, "the permission request")
		end(st, s)

		again := make(chan string, 1)
		next := st.reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{tool("by the next")},
			OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
				again <- r.CallbackID
				return copilot.ApproveOnce(), nil
			},
		})
		if got := await(st, again, "the permission request again"); got != id {
			t.Errorf("the permission has id %q now, was %q", got, id)
		}
		if ev := st.first(next, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "by the next" {
			t.Errorf("the agent said %v", ev)
		}
		st.first(next, "session.idle")
		wantContinued(st, next, true, false)
		st.say(next, "and on")
	})
}

// TestPendingToolCallIsContinued: the same with a tool call.
func TestPendingToolCallIsContinued(t *testing.T) {
	t.Parallel()
	eachEnding(t, func(t *testing.T, newStage stageMaker, lifetime bridgev1.Lifetime, end func(*stage, *copilot.Session)) {
		st := newStage(t, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
		begun := make(chan string, 1)
		s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{blocking("work", begun)}})
		if _, err := s.Send(st.ctx, "work"); err != nil {
			t.Fatal(err)
		}
		id := await(st, begun, "the tool's call")
		end(st, s)

		again := make(chan string, 1)
		next := st.reopen(s.ID(), copilot.SessionOptions{ContinuePendingWork: true, Tools: []copilot.Tool{
			copilot.NewTool("work", "Works", func(ctx context.Context, _ struct{}) (string, error) {
				from, _ := copilot.CallFrom(ctx)
				again <- from.CallbackID
				return "by the next", nil
			}, copilot.SkipPermission()),
		}})
		if got := await(st, again, "the tool's call again"); got != id {
			t.Errorf("the call has id %q now, was %q", got, id)
		}
		if ev := st.first(next, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "by the next" {
			t.Errorf("the agent said %v", ev)
		}
		st.first(next, "session.idle")
		st.say(next, "and on")
	})
}

// TestTwoPendingToolCallsAreAnsweredInTheOtherOrder does so by hand.
func TestTwoPendingToolCallsAreAnsweredInTheOtherOrder(t *testing.T) {
	t.Parallel()
	eachEnding(t, func(t *testing.T, newStage stageMaker, lifetime bridgev1.Lifetime, end func(*stage, *copilot.Session)) {
		st := newStage(t,
			onUser("work", call("left", nil), call("right", nil)),
			onResult("", say("{{tool_result.left}}, {{tool_result.right}}")),
		)
		begun := make(chan string, 2)
		s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{blocking("left", begun), blocking("right", begun)}})
		if _, err := s.Send(st.ctx, "work"); err != nil {
			t.Fatal(err)
		}
		await(st, begun, "a tool's call")
		await(st, begun, "the other tool's call")
		before := map[string]string{}
		for _, cb := range st.pending(s, 2) {
			before[cb.GetToolCall().GetToolName()] = cb.GetCallbackId()
		}
		end(st, s)

		declared := func(name string) copilot.Tool {
			return copilot.Tool{Definition: &cliv1.ToolDefinition{Name: name, Description: "Works", SkipPermission: proto.Bool(true)}}
		}
		next := st.reopen(s.ID(), copilot.SessionOptions{
			ContinuePendingWork: true, Tools: []copilot.Tool{declared("left"), declared("right")},
		})
		for _, cb := range st.pending(next, 2) {
			if name := cb.GetToolCall().GetToolName(); cb.GetCallbackId() != before[name] {
				t.Errorf("the call of %s has id %q now, was %q", name, cb.GetCallbackId(), before[name])
			}
		}
		for _, name := range []string{"right", "left"} {
			answer, _ := copilot.AnswerTool("from the " + name)
			if err := next.Resolve(st.ctx, before[name], answer); err != nil {
				t.Fatalf("answer of %s: %v", name, err)
			}
		}
		if ev := st.first(next, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "from the left, from the right" {
			t.Errorf("the agent said %v", ev)
		}
		st.first(next, "session.idle")
	})
}

// TestNothingPendingToContinue: continuing then does nothing.
func TestNothingPendingToContinue(t *testing.T) {
	t.Parallel()
	eachEnding(t, func(t *testing.T, newStage stageMaker, lifetime bridgev1.Lifetime, end func(*stage, *copilot.Session)) {
		st := newStage(t, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
		s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{answering("work", "done")}})
		st.say(s, "work")
		end(st, s)
		next := st.reopen(s.ID(), copilot.SessionOptions{ContinuePendingWork: true, Tools: []copilot.Tool{answering("work", "done again")}})
		if list := st.pending(next, 0); len(list) > 0 {
			t.Errorf("pending: %v", list)
		}
		now, err := next.Get(st.ctx)
		if err != nil || now.GetTurnRunning() {
			t.Errorf("a turn is running: %v, %v", now, err)
		}
		if out := st.say(next, "work"); out.GetText() != "done again" {
			t.Errorf("the agent said %q", out.GetText())
		}
		wantContinued(st, next, true, false)
	})
}

// TestWarmResumeKeepsWhatIsPending: continue_pending_work is about what was unloaded, and
// this session is not.
func TestWarmResumeKeepsWhatIsPending(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
	var calls atomic.Int32
	begun, finish := make(chan struct{}), make(chan struct{})
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("work", "Works", func(ctx context.Context, _ struct{}) (string, error) {
			if calls.Add(1) == 1 {
				close(begun)
			}
			select {
			case <-finish:
				return "by the first", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, copilot.SkipPermission()),
	}})
	turn := st.goSay(s, "work")
	await(st, begun, "the tool's call")
	next := st.reopen(s.ID(), copilot.SessionOptions{})
	if now, err := next.Get(st.ctx); err != nil || !now.GetTurnRunning() {
		t.Errorf("the turn does not go on: %v, %v", now, err)
	}
	st.pending(next, 1)
	close(finish)
	if out := turn(); out.GetText() != "by the first" {
		t.Errorf("the agent said %q", out.GetText())
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
	if asked := st.all(s, "external_tool.requested"); len(asked) != 1 {
		t.Errorf("the CLI asked %d times", len(asked))
	}
	wantContinued(st, s, false, true)
}

// TestColdResumeDropsWhatIsPending: what was pending is over, and the model hears so.
func TestColdResumeDropsWhatIsPending(t *testing.T) {
	t.Parallel()
	eachEnding(t, func(t *testing.T, newStage stageMaker, lifetime bridgev1.Lifetime, end func(*stage, *copilot.Session)) {
		st := newStage(t, onUser("work", call("work", nil)))
		begun := make(chan string, 1)
		s := st.create(copilot.SessionOptions{Lifetime: lifetime, Tools: []copilot.Tool{blocking("work", begun)}})
		if _, err := s.Send(st.ctx, "work"); err != nil {
			t.Fatal(err)
		}
		id := await(st, begun, "the tool's call")
		end(st, s)

		next := st.reopen(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{answering("work", "too late")}})
		answer, _ := copilot.AnswerTool("too late")
		wantReason(t, next.Resolve(st.ctx, id, answer), bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
		if list := st.pending(next, 0); len(list) > 0 {
			t.Errorf("pending: %v", list)
		}
		if now, err := next.Get(st.ctx); err != nil || now.GetTurnRunning() {
			t.Errorf("the turn goes on: %v, %v", now, err)
		}
		if out := st.say(next, "something new"); out.GetText() != "You said: something new" {
			t.Errorf("the agent said %q", out.GetText())
		}
		if told := st.toolResults()["work"]; told == "" || strings.Contains(told, "too late") {
			t.Errorf("of the call the model was told %q", told)
		}
		wantContinued(st, next, false, false)
	})
}

// wantContinued checks that a session was resumed once, and what the event says of it.
func wantContinued(st *stage, s *copilot.Session, continued, active bool) {
	st.t.Helper()
	events := st.all(s, "session.resume")
	if len(events) != 1 {
		st.t.Fatalf("there are %d session.resume events, want 1", len(events))
	}
	d := events[0].GetEvent().GetSessionResume()
	if d.GetContinuePendingWork() != continued || d.GetSessionWasActive() != active {
		st.t.Errorf("session.resume says continued %v, active %v, want %v, %v",
			d.GetContinuePendingWork(), d.GetSessionWasActive(), continued, active)
	}
	if events[0].GetCause() != bridgev1.EventCause_EVENT_CAUSE_UNSPECIFIED {
		st.t.Errorf("session.resume is said to be the bridge's own")
	}
}

// TestRuntimeKilledWhileIdle: the next send finds everything as it was.
func TestRuntimeKilledWhileIdle(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	st.say(s, "first")
	restarted := st.kill(s.ID())
	if restarted.GetTurnOutcome() != nil || restarted.GetCause() == "" {
		t.Errorf("the subscriber was told %v", restarted)
	}
	if out := st.say(s, "work"); out.GetText() != "done" {
		t.Errorf("the agent said %q", out.GetText())
	}
	wantWhole(st, "work")
	for _, ev := range st.all(s, "session.resume") {
		t.Errorf("the restart left %v in the history", ev)
	}
}

// TestRuntimeKilledInATurn: the turn is lost, and nothing else.
func TestRuntimeKilledInATurn(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, rule{When: whenUser("slow"), WaitFor: "never", Reply: steps(say("never"))})
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	st.say(s, "first")
	ended := st.goTurn(s, "slow")
	st.gate("never")
	restarted := st.kill(s.ID())
	lost := bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
	if restarted.GetTurnOutcome().GetStatus() != lost {
		t.Errorf("the subscriber was told %v", restarted)
	}
	if out := ended(); out.GetStatus() != lost {
		t.Errorf("the sender was told %v", out)
	}
	st.say(s, "second")
	wantWhole(st, "work")
	if texts := userTexts(st); !slices.Contains(texts, "first") || !slices.Contains(texts, "second") {
		t.Errorf("the model was told %q", texts)
	}
}

// TestRuntimeKilledWhileAPermissionIsPending: whoever was asked may still answer.
func TestRuntimeKilledWhileAPermissionIsPending(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("done")))
	asked, decide := make(chan string, 1), make(chan struct{})
	s := st.create(copilot.SessionOptions{
		OnPermission: func(ctx context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			asked <- r.CallbackID
			select {
			case <-decide:
				return copilot.ApproveOnce(), nil
			case <-ctx.Done():
				return nil, copilot.ErrAbstain
			}
		},
	})
	if _, err := s.Send(st.ctx, "touch"); err != nil {
		t.Fatal(err)
	}
	id := await(st, asked, "the permission request")
	st.kill(s.ID())
	if still := st.pending(s, 1)[0]; still.GetCallbackId() != id {
		t.Errorf("pending is %v, want %q", still, id)
	}
	close(decide)
	st.first(s, "assistant.message", copilot.After(st.first(s, "permission.completed").GetPosition()))
	if !st.exists("made") {
		t.Error("the command did not run")
	}
	st.say(s, "and on")
}

// particular is a configuration that shows in each model request.
func (st *stage) particular() *cliv1.SessionConfig {
	config := st.config()
	config.SystemMessage = &cliv1.SystemMessageConfig{
		Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_APPEND, Content: proto.String("Always be brief."),
	}
	config.ExcludedTools = &cliv1.StringList{Items: []string{"view"}}
	return config
}

// wantWhole checks that the newest model request shows the particular configuration, and
// offers tools.
func wantWhole(st *stage, tools ...string) {
	st.t.Helper()
	request := st.lastModelRequest()
	if !strings.Contains(request.System, "Always be brief.") {
		st.t.Error("the model was not told to be brief")
	}
	offered := names(request.Tools)
	for _, name := range tools {
		if !slices.Contains(offered, name) {
			st.t.Errorf("the model was offered %q, without %q", offered, name)
		}
	}
	if slices.Contains(offered, "view") {
		st.t.Errorf("the model was offered %q, an excluded tool included", offered)
	}
	if !request.Streaming {
		st.t.Error("streaming was lost")
	}
}

// TestUnansweredWorkOfADisconnectedSession cannot be answered before a resume.
func TestUnansweredWorkOfADisconnectedSession(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("work", call("work", nil)))
	begun := make(chan string, 1)
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{blocking("work", begun)}})
	if _, err := s.Send(st.ctx, "work"); err != nil {
		t.Fatal(err)
	}
	id := await(st, begun, "the tool's call")
	if err := s.Disconnect(st.ctx); err != nil {
		t.Fatal(err)
	}
	answer, _ := copilot.AnswerTool("too late")
	err := st.client.Session(s.ID()).Resolve(st.ctx, id, answer)
	wantField(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND, "session_id")
}
