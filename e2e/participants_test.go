package e2e

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// answering is a tool without arguments that always says the same.
func answering(name, text string) copilot.Tool {
	return copilot.NewTool(name, "Says "+text, func(context.Context, struct{}) (string, error) { return text, nil },
		copilot.SkipPermission())
}

func TestBothClientsSeeAToolCall(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("use it", call("it", nil)), onResult("it", say("used")))
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("it", "yes")}})
	other := st.join(s.ID(), copilot.SessionOptions{})
	turn := st.goSay(s, "use it")
	for _, client := range []*copilot.Session{s, other} {
		asked := st.first(client, "external_tool.requested").GetEvent().GetExternalToolRequested()
		done := st.first(client, "external_tool.completed").GetEvent().GetExternalToolCompleted()
		if asked.GetToolName() != "it" || asked.GetRequestId() == "" || done.GetRequestId() != asked.GetRequestId() {
			t.Errorf("requested %v, completed %v", asked, done)
		}
	}
	turn()
}

// TestOneApprovesAndBothSeeIt also has the write that was approved be made.
func TestOneApprovesAndBothSeeIt(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("write", call("bash", shell("echo text > out.txt"))), onResult("bash", say("written")))
	s := st.create(copilot.SessionOptions{})
	other := st.join(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	frames := st.callbacks(s.ID())
	st.say(s, "write")
	asked := frames.requested(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
	if over := frames.resolved(asked.GetCallbackId()); over.GetParticipantId() != other.ParticipantID() {
		t.Errorf("answered by %q, want %q", over.GetParticipantId(), other.ParticipantID())
	}
	for _, client := range []*copilot.Session{s, other} {
		done := st.first(client, "permission.completed").GetEvent().GetPermissionCompleted()
		if done.GetRequestId() != asked.GetCallbackId() || done.GetResult().GetApproved() == nil {
			t.Errorf("completed %v", done)
		}
	}
	if got := st.read("out.txt"); got != "text\n" {
		t.Errorf("the file has %q", got)
	}
}

func TestOneRejectsAndTheFileIsUntouched(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("spoil", call("bash", shell("echo spoilt > precious.txt"))), onResult("bash", say("{{tool_result}}")))
	st.write("precious.txt", "precious")
	s := st.create(copilot.SessionOptions{})
	other := st.join(s.ID(), copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.Reject("keep your hands off"), nil
		},
	})
	out := st.say(s, "spoil")
	if !strings.Contains(out.GetText(), "keep your hands off") {
		t.Errorf("the model was told %q", out.GetText())
	}
	for _, client := range []*copilot.Session{s, other} {
		done := st.first(client, "permission.completed").GetEvent().GetPermissionCompleted()
		if denied := done.GetResult().GetDeniedInteractivelyByUser(); denied == nil {
			t.Errorf("completed %v", done)
		}
	}
	if got := st.read("precious.txt"); got != "precious" {
		t.Errorf("the file has %q", got)
	}
}

func TestToolsOfTwoClients(t *testing.T) {
	t.Parallel()
	st := newStage(t,
		onUser("use both", call("hers", nil), call("his", nil)),
		onResult("", say("{{tool_result.hers}} and {{tool_result.his}}")),
	)
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("hers", "one")}})
	st.join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{answering("his", "two")}})
	if out := st.say(s, "use both"); out.GetText() != "one and two" {
		t.Errorf("the agent said %q", out.GetText())
	}
	if offered := names(st.model.ModelRequests()[0].Tools); !slices.Contains(offered, "hers") || !slices.Contains(offered, "his") {
		t.Errorf("the model was offered %q", offered)
	}
}

// TestToolsLeaveWithTheirClient looks at what the model is offered half a second after a
// client has left, or was cut off without a place to come back to.
func TestToolsLeaveWithTheirClient(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(c *copilot.Client, s *copilot.Session) error{
		"leaves": func(_ *copilot.Client, s *copilot.Session) error { return s.Close() },
		"closes": func(c *copilot.Client, _ *copilot.Session) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("stays", "here")}})
			client := st.dial()
			other, err := client.JoinSession(st.ctx, s.ID(), copilot.SessionOptions{
				Tools: []copilot.Tool{answering("goes", "there")},
			})
			if err != nil {
				t.Fatal(err)
			}
			st.say(s, "who is there?")
			if offered := names(st.lastModelRequest().Tools); !slices.Contains(offered, "goes") || !slices.Contains(offered, "stays") {
				t.Fatalf("before, the model was offered %q", offered)
			}
			if err := leave(client, other); err != nil {
				t.Fatal(err)
			}
			<-time.After(500 * time.Millisecond) // the promise
			st.say(s, "and now?")
			if offered := names(st.lastModelRequest().Tools); slices.Contains(offered, "goes") || !slices.Contains(offered, "stays") {
				t.Errorf("after, the model was offered %q", offered)
			}
		})
	}
}

func TestClientWithoutToolsLeavesThoseOfOthers(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("mine", "me")}})
	joined := st.join(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.reopen(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.say(s, "anybody?")
	if offered := names(st.lastModelRequest().Tools); !slices.Contains(offered, "mine") {
		t.Errorf("the model was offered %q", offered)
	}
	if err := joined.Close(); err != nil {
		t.Fatal(err)
	}
	st.say(s, "still?")
	if offered := names(st.lastModelRequest().Tools); !slices.Contains(offered, "mine") {
		t.Errorf("the model was offered %q", offered)
	}
}

// TestSetTools replaces a participant's tools in the course of a session.
func TestSetTools(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("use", call("new", nil)), onResult("new", say("{{tool_result}}")))
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("old", "before")}})
	other := st.join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{answering("others", "x")}})
	st.say(s, "hello")
	if err := s.SetTools(st.ctx, answering("new", "after")); err != nil {
		t.Fatal(err)
	}
	if out := st.say(s, "use"); out.GetText() != "after" {
		t.Errorf("the agent said %q", out.GetText())
	}
	offered := names(st.lastModelRequest().Tools)
	if slices.Contains(offered, "old") || !slices.Contains(offered, "new") || !slices.Contains(offered, "others") {
		t.Errorf("the model was offered %q", offered)
	}
	err := other.SetTools(st.ctx, answering("others", "x"), answering("new", "mine"))
	wantField(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CLASH, "command.set_tools.tools[0].name")
}

func TestToolNameClashIsRefused(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("use", call("taken", nil)), onResult("taken", say("{{tool_result}}")))
	owned := answering("owned", "by the session")
	owned.OwnedBySession = true
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("taken", "the first's"), owned}})
	for _, name := range []string{"taken", "owned"} {
		_, err := st.dial().JoinSession(st.ctx, s.ID(), copilot.SessionOptions{
			Tools: []copilot.Tool{answering("free", "x"), answering(name, "the second's")},
		})
		wantField(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CLASH, "start.tools[1].name")
	}
	now, err := s.Get(st.ctx)
	if err != nil || len(now.GetParticipants()) != 1 {
		t.Errorf("participants %v, %v", now.GetParticipants(), err)
	}
	if out := st.say(s, "use"); out.GetText() != "the first's" {
		t.Errorf("the agent said %q", out.GetText())
	}
}

// TestFirstValidAnswerWins has two clients asked, of which one answers first with what is
// not valid.
func TestFirstValidAnswerWins(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("done")))
	s := st.create(copilot.SessionOptions{})
	a := st.attach(joinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	b := st.attach(joinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	turn := st.goSay(s, "touch")
	asked := a.requested()
	if also := b.requested(); also.GetCallbackId() != asked.GetCallbackId() {
		t.Fatalf("one is asked %v, the other %v", asked, also)
	}
	if to := asked.GetParticipantIds(); !slices.Contains(to, a.id) || !slices.Contains(to, b.id) {
		t.Errorf("asked of %q, want %q and %q", to, a.id, b.id)
	}
	tool, _ := copilot.AnswerTool("what?")
	if f := a.answer(asked.GetCallbackId(), tool).failed; f.GetReason() != bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID {
		t.Errorf("the invalid answer: %v", f)
	}
	approve := copilot.AnswerPermission(copilot.ApproveOnce())
	if reply := b.answer(asked.GetCallbackId(), approve); reply.done == nil {
		t.Fatalf("the valid answer: %v", reply.failed)
	}
	for _, one := range []*attached{a, b} {
		over := one.resolved(asked.GetCallbackId())
		if over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED || over.GetParticipantId() != b.id {
			t.Errorf("resolved as %v, want by %q", over, b.id)
		}
	}
	late := a.answer(asked.GetCallbackId(), copilot.AnswerPermission(copilot.Reject(""))).failed
	if late.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
		t.Errorf("the late answer: %v", late)
	}
	turn()
	if !st.exists("made") {
		t.Error("the command did not run")
	}
}

// TestRaceOfAnswers has many answer one callback at once: one wins, the others are told.
func TestRaceOfAnswers(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("done")))
	s := st.create(copilot.SessionOptions{SessionHandlers: &bridgev1.Handlers{Permission: true}})
	turn := st.goSay(s, "touch")
	asked := st.pending(s, 1)[0]
	const racers = 8
	errs := make(chan error, racers)
	for range racers {
		go func() {
			errs <- s.Resolve(st.ctx, asked.GetCallbackId(), copilot.AnswerPermission(copilot.ApproveOnce()))
		}()
	}
	won := 0
	for range racers {
		if err := <-errs; err == nil {
			won++
		} else {
			wantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
		}
	}
	if won != 1 {
		t.Errorf("%d answers won", won)
	}
	turn()
}

// TestAbstain: "not me" sends nothing, and others may still answer.
func TestAbstain(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("done")))
	abstained := make(chan struct{})
	s := st.create(copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			close(abstained)
			return nil, copilot.ErrAbstain
		},
	})
	other := st.join(s.ID(), copilot.SessionOptions{
		OnPermission: func(ctx context.Context, _ *copilot.PermissionRequest) (*copilot.Decision, error) {
			select {
			case <-abstained:
				return copilot.ApproveOnce(), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	frames := st.callbacks(s.ID())
	st.say(s, "touch")
	asked := frames.requested(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
	over := frames.resolved(asked.GetCallbackId())
	if over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED || over.GetParticipantId() != other.ParticipantID() {
		t.Errorf("resolved as %v", over)
	}
}

// TestHandlerIsToldThatItsAnswerIsNoLongerWanted: by an abort, and by somebody else's answer.
func TestHandlerIsToldThatItsAnswerIsNoLongerWanted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		end  func(*stage, *copilot.Session) error
		want bridgev1.CallbackOutcome
	}{
		"abort": {
			func(st *stage, s *copilot.Session) error { _, err := s.Abort(st.ctx); return err },
			bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN,
		},
		"answer of another": {
			func(st *stage, s *copilot.Session) error {
				answer, err := copilot.AnswerTool("I was faster")
				if err != nil {
					return err
				}
				return s.Resolve(st.ctx, st.pending(s, 1)[0].GetCallbackId(), answer)
			},
			bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, onUser("wait", call("waits", nil)), onResult("waits", say("{{tool_result}}")))
			begun, cause := make(chan struct{}), make(chan error, 1)
			s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{
				copilot.NewTool("waits", "Waits", func(ctx context.Context, _ struct{}) (string, error) {
					close(begun)
					<-ctx.Done()
					cause <- context.Cause(ctx)
					return "", ctx.Err()
				}, copilot.SkipPermission()),
			}})
			turn := st.goTurn(s, "wait")
			await(st, begun, "the tool's call")
			if err := end.end(st, s); err != nil {
				t.Fatal(err)
			}
			why, ok := await(st, cause, "the end of the tool's context").(*copilot.WithdrawnError)
			if !ok || why.Outcome != end.want {
				t.Errorf("the tool was told %v", why)
			}
			turn()
		})
	}
}

// TestParticipantReturns cuts a client's connection while its tool runs: it takes its place
// again, and its answer counts.
func TestParticipantReturns(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("slow", call("slow", nil)), onResult("slow", say("{{tool_result}}")))
	cable := new(cable)
	client := st.dial(cable.option())
	begun, finish := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	s, err := client.CreateSession(st.ctx, copilot.SessionOptions{Config: st.config(), Tools: []copilot.Tool{
		copilot.NewTool("slow", "Takes its time", func(ctx context.Context, _ struct{}) (string, error) {
			if calls.Add(1) == 1 {
				close(begun)
			}
			select {
			case <-finish:
				return "finished", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}, copilot.SkipPermission()),
	}})
	if err != nil {
		t.Fatal(err)
	}
	st.adopt(s)
	id := s.ParticipantID()
	turn := st.goSay(st.client.Session(s.ID()), "slow")
	await(st, begun, "the tool's call")
	cable.cut()
	if _, err := s.Get(st.ctx); err != nil { // by the next connection
		t.Fatal(err)
	}
	close(finish)
	if out := turn(); out.GetText() != "finished" {
		t.Errorf("the agent said %q", out.GetText())
	}
	if s.ParticipantID() != id || calls.Load() != 1 {
		t.Errorf("it is participant %q now, was %q; its tool was called %d times", s.ParticipantID(), id, calls.Load())
	}
}

// TestCallbacksComeAgain looks at the same without the comforts of clients/go.
func TestCallbacksComeAgain(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("done")))
	s := st.create(copilot.SessionOptions{})
	cable := new(cable)
	a := st.attachBy(st.dial(cable.option()), joinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	turn := st.goSay(s, "touch")
	asked := a.requested()
	cable.cut()
	if err := a.end(); err == nil {
		t.Error("the stream of the broken connection ended well")
	}
	start := joinOf(s.ID(), &bridgev1.Handlers{Permission: true})
	start.Token = a.token
	again := st.attach(start)
	if !again.started.GetReturned() || again.id != a.id {
		t.Errorf("came back as %v", again.started)
	}
	if cb := again.requested(); cb.GetCallbackId() != asked.GetCallbackId() || !slices.Contains(cb.GetParticipantIds(), again.id) {
		t.Errorf("asked %v", cb)
	}
	again.answer(asked.GetCallbackId(), copilot.AnswerPermission(copilot.ApproveOnce()))
	turn()
}

func TestReplacedStream(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{})
	first := st.attach(joinOf(s.ID(), nil))
	start := joinOf(s.ID(), nil)
	start.Token = first.token
	second := st.attach(start)
	if !second.started.GetReturned() || second.id != first.id {
		t.Errorf("the second is %v", second.started)
	}
	wantError(t, first.end(), codes.Aborted, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_REPLACED)
	if c := first.closed(); c.GetReason() != bridgev1.CloseReason_CLOSE_REASON_REPLACED {
		t.Errorf("the first was told %v", c)
	}
	now, err := s.Get(st.ctx)
	if err != nil || len(now.GetParticipants()) != 2 {
		t.Errorf("participants %v, %v", now.GetParticipants(), err)
	}
}

// TestGraceIsOver has a participant's place be gone, with its tools, when it comes too late.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{})
	cable := new(cable)
	start := joinOf(s.ID(), nil)
	start.Tools = append(start.Tools, answering("brief", "x").Definition)
	start.Grace = noGrace
	a := st.attachBy(st.dial(cable.option()), start)
	cable.cut()
	if err := a.end(); err == nil {
		t.Error("the stream of the broken connection ended well")
	}
	<-time.After(500 * time.Millisecond) // the promise
	st.say(s, "anybody?")
	if offered := names(st.lastModelRequest().Tools); slices.Contains(offered, "brief") {
		t.Errorf("the model was offered %q", offered)
	}
	late := joinOf(s.ID(), nil)
	late.Token = a.token
	_, err := st.tryAttach(st.client, late)
	wantField(t, err, codes.NotFound, bridgev1.ErrorReason_ERROR_REASON_PARTICIPANT_NOT_FOUND, "start.token")
}

// TestParticipantsAreTold has sessions and streams tell who is there.
func TestParticipantsAreTold(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{Name: "the maker", Tools: []copilot.Tool{answering("hammer", "x")}})
	other := st.join(s.ID(), copilot.SessionOptions{Name: "the guest"})
	now, err := s.Get(st.ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := now.GetParticipants()
	if len(got) != 2 || got[0].GetName() != "the maker" || !slices.Equal(got[0].GetTools(), []string{"hammer"}) ||
		got[1].GetName() != "the guest" || got[1].GetParticipantId() != other.ParticipantID() || !got[1].GetConnected() {
		t.Errorf("participants %v", got)
	}
}

// TestTurnOutlivesItsSender: the one who sent leaves, the turn goes on.
func TestTurnOutlivesItsSender(t *testing.T) {
	t.Parallel()
	st := newStage(t, offlinemodel.Rule{
		When: offlinemodel.When{User: "slow"}, WaitFor: "later", Reply: []offlinemodel.Step{say("at last")},
	})
	s := st.create(copilot.SessionOptions{})
	sender := st.join(s.ID(), copilot.SessionOptions{})
	if _, err := sender.Send(st.ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	st.gate("later")
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	st.model.Release("later")
	if ev := st.first(s, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "at last" {
		t.Errorf("the turn said %v", ev)
	}
}
