package session

import (
	"fmt"
	"strings"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// queued is a message of a test and the outcome that its caller gets: its status, its text, and the error's message.
type queued struct {
	text      string
	immediate bool
	want      string
}

// fails is a rule of a model that refuses a message.
func fails(text, message string) harness.Rule {
	return harness.Rule{When: harness.WhenUser(text), Error: &offlinemodel.Failure{Status: 400, Message: message}}
}

// submit begins a SendAndWait on a connection of its own, and returns once the CLI has the message.
func submit(st *harness.Scripted, s *copilot.Session, text string, opts ...copilot.SendOption) func() *copilot.Outcome {
	st.T.Helper()
	had := len(st.All(s, "pending_messages.modified"))
	wait := st.GoTurn(st.Dial().Session(s.ID()), text, opts...)
	st.Eventually("the CLI to have "+text, func() bool {
		return len(st.All(s, "pending_messages.modified")) > had
	})
	return wait
}

// submitAll submits messages in order.
func submitAll(st *harness.Scripted, s *copilot.Session, messages []queued) (waits []func() *copilot.Outcome) {
	st.T.Helper()
	for _, m := range messages {
		var opts []copilot.SendOption
		if m.immediate {
			opts = append(opts, copilot.Immediately())
		}
		waits = append(waits, submit(st, s, m.text, opts...))
	}
	return waits
}

// brief is an outcome as a test expects it.
func brief(out *copilot.Outcome) string {
	text := string(out.Status())
	if out.Text() != "" {
		text += " " + out.Text()
	}
	if out.Error() != nil {
		text += ": " + out.Error().GetMessage()
	}
	return text
}

// TestQueuedMessagesHaveTheirOwnOutcomes: callers on connections of their own send messages while the first one's turn
// runs. Each gets the answer or the error to its own message, with its own positions, and readers are told of each turn.
func TestQueuedMessagesHaveTheirOwnOutcomes(t *testing.T) {
	t.Parallel()
	ten := []queued{{text: "Q-one", want: "completed A1"}}
	for n := 2; n <= 10; n++ {
		m := queued{text: fmt.Sprintf("Q-n%d.", n), want: fmt.Sprintf("completed An%d", n)}
		if n%3 == 0 {
			m = queued{text: fmt.Sprintf("Q-bad%d.", n), want: fmt.Sprintf("failed: 400 bad%d", n)}
		}
		ten = append(ten, m)
	}
	for name, messages := range map[string][]queued{
		"the second fails":   {{text: "Q-one", want: "completed A1"}, {text: "Q-two", want: "failed: 400 two broke"}},
		"the second answers": {{text: "Q-one", want: "completed A1"}, {text: "Q-n3.", want: "completed An3"}},
		"the second is silent": {{text: "Q-one", want: "completed A1"}, {text: "hush", want: "completed"},
			{text: "Q-n3.", want: "completed An3"}},
		"the first fails": {{text: "Q-broken", want: "failed: 400 one broke"}, {text: "Q-n2.", want: "completed An2"},
			{text: "Q-n3.", want: "completed An3"}},
		"an immediate one after two": {{text: "Q-one", want: "completed A1"}, {text: "Q-two", want: "failed: 400 two broke"},
			{text: "Q-n4.", immediate: true, want: "completed An4"}},
		"an immediate one fails": {{text: "Q-one", want: "completed A1"}, {text: "Q-n3.", want: "completed An3"},
			{text: "Q-two", immediate: true, want: "failed: 400 two broke"}},
		"ten": ten,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := harness.Rules(
				harness.Rule{When: harness.WhenUser("Q-one"), WaitFor: "one", Reply: harness.Steps(harness.Say("A1"))},
				harness.Rule{When: harness.WhenUser("Q-broken"), WaitFor: "one",
					Error: &offlinemodel.Failure{Status: 400, Message: "one broke"}},
				fails("Q-two", "two broke"), harness.OnUser("hush", offlinemodel.Step{Reasoning: "better say nothing"}))
			for n := range 11 {
				rules = append(rules, fails(fmt.Sprintf("Q-bad%d.", n), fmt.Sprintf("bad%d", n)),
					harness.OnUser(fmt.Sprintf("Q-n%d.", n), harness.Say(fmt.Sprintf("An%d", n))))
			}
			st := harness.NewScripted(t, rules...)
			s := st.Create(copilot.SessionOptions{})
			told := turnsTold(st, s)
			waits := submitAll(st, s, messages[:1])
			st.Gate("one")
			waits = append(waits, submitAll(st, s, messages[1:])...)
			st.Model.Release("one")
			outcomes := map[string]bool{}
			for i, m := range messages {
				out := waits[i]()
				if got := brief(out); got != m.want {
					t.Errorf("%s: %s, want %s", m.text, got, m.want)
				}
				ownEvents(st, s, m.text, out)
				outcomes[out.Proto.String()] = true
			}
			for range messages {
				if end := harness.Await(st, told, "the end of a turn"); !outcomes[end.GetOutcome().String()] {
					t.Errorf("readers were told of %v, which no caller was", end)
				}
			}
		})
	}
}

// turnsTold gives the TurnEnded frames of a session.
func turnsTold(st *harness.Scripted, s *copilot.Session) <-chan *bridgev1.TurnEnded {
	told := make(chan *bridgev1.TurnEnded, 64)
	caught := make(chan struct{})
	go func() {
		for frame, err := range s.Frames(st.Ctx) {
			if err != nil {
				return
			}
			if frame.GetCaughtUp() != nil {
				close(caught)
			}
			if end := frame.GetTurnEnded(); end != nil {
				told <- end
			}
		}
	}()
	harness.Await(st, caught, "the stream to have caught up")
	return told
}

// ownEvents checks that an outcome's positions are those of the message's own turn: between the message and the end there
// is no message but those that steer, and the text is there.
func ownEvents(st *harness.Scripted, s *copilot.Session, text string, out *copilot.Outcome) {
	st.T.Helper()
	var begun, said *bridgev1.Event
	for _, ev := range st.All(s, "user.message", "assistant.message") {
		message := ev.GetEvent().GetUserMessage()
		switch {
		case harness.Less(out.Proto.GetEndPosition(), ev.GetPosition()):
		case message.GetContent() == text:
			begun = ev
		case message != nil && begun != nil:
			st.T.Errorf("%s: its turn has the message %q too", text, message.GetContent())
		case message == nil && begun != nil:
			said = ev
		}
	}
	if begun == nil {
		st.T.Errorf("%s: its turn ends before it", text)
	}
	if at := said.GetPosition(); at.GetSeq() != out.Proto.GetMessagePosition().GetSeq() ||
		said.GetEvent().GetAssistantMessage().GetContent() != out.Text() {
		st.T.Errorf("%s: the answer is at %v, its message position %v", text, at, out.Proto.GetMessagePosition())
	}
}

// TestSteeringSharesTheTurn: a message that steers a running turn shares its end and its error, and has the answer that
// was given after it.
func TestSteeringSharesTheTurn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ steering, first, second string }{
		"it answers": {"Q-steer", "completed steered", "completed steered"},
		"it fails":   {"Q-two", "failed calling: 400 two broke", "failed: 400 two broke"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("Q-tool", harness.Say("calling"), harness.Call("lookup", nil)),
				fails("Q-two", "two broke"), harness.OnUser("Q-steer", harness.Say("steered")),
				harness.OnUser("Q-three", harness.Say("A3")))
			hold := harness.NewHold()
			s := st.Create(copilot.SessionOptions{
				OnPermission: copilot.ApproveAll, Tools: []copilot.Tool{hold.Tool("lookup", "found")},
			})
			first := submit(st, s, "Q-tool")
			st.First(s, "external_tool.requested")
			waits := submitAll(st, s, []queued{{text: c.steering, immediate: true}, {text: "Q-three"}})
			hold.Release()
			one, two, three := first(), waits[0](), waits[1]()
			for what, got := range map[string][2]string{
				"the turn": {brief(one), c.first}, "steering": {brief(two), c.second}, "behind": {brief(three), "completed A3"},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: %s, want %s", what, got[0], got[1])
				}
			}
			if one.Proto.GetEndPosition().GetSeq() != two.Proto.GetEndPosition().GetSeq() ||
				!harness.Less(one.Proto.GetEndPosition(), three.Proto.GetEndPosition()) {
				t.Errorf("the ends are %v, %v and %v", one.Proto.GetEndPosition(), two.Proto.GetEndPosition(), three.Proto.GetEndPosition())
			}
		})
	}
}

// TestAbortEndsWhatIsQueued: an abort ends the running turn and all messages behind it, and no turn before it.
func TestAbortEndsWhatIsQueued(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("Q-one"), WaitFor: "one", Reply: harness.Steps(harness.Say("A1"))},
		harness.OnUser("Q-two", harness.Say("begun"), offlinemodel.Step{Hang: true}))
	s := st.Create(copilot.SessionOptions{})
	messages := []queued{
		{text: "Q-one", want: "completed A1"}, {text: "Q-two", want: "aborted"}, {text: "Q-three", want: "aborted"},
	}
	waits := submitAll(st, s, messages[:1])
	st.Gate("one")
	waits = append(waits, submitAll(st, s, messages[1:])...)
	st.Model.Release("one")
	first := waits[0]()
	for ev, err := range s.Events(st.Ctx, copilot.After(first.Proto.GetEndPosition()), copilot.OfTypes("assistant.message_delta")) {
		if err != nil || ev != nil {
			break
		}
	}
	if running, err := s.Abort(st.Ctx); err != nil || !running {
		t.Fatalf("abort: %v, %v", running, err)
	}
	for i, m := range messages {
		if got := brief(waits[i]()); !strings.HasPrefix(got, m.want) || strings.Contains(got, "A1") != (i == 0) {
			t.Errorf("%s: %s, want %s", m.text, got, m.want)
		}
	}
}

// TestQueuedBehindAnAgent: a message behind a turn with a sub-agent has its own answer, also if the sub-agent goes on in
// the background.
func TestQueuedBehindAnAgent(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"sync", "background"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t,
				harness.OnUser("Q-sub", harness.Call("task", map[string]any{
					"name": "helper", "agent_type": "explore", "description": "look around", "prompt": "Q-inner", "mode": mode,
				})),
				harness.Rule{When: harness.WhenUser("Q-inner"), WaitFor: "inner", Reply: harness.Steps(harness.Say("inner"))},
				harness.Rule{When: offlinemodel.When{ToolResult: &offlinemodel.ToolResultCondition{Name: "task"}}, WaitFor: "task",
					Reply: harness.Steps(harness.Say("A-sub"))},
				fails("Q-two", "two broke"))
			if st.Before("1.0.102") {
				t.Skip("an older CLI has other agents")
			}
			s := st.Create(copilot.SessionOptions{OnPermission: copilot.ApproveAll})
			first := submit(st, s, "Q-sub")
			st.Gate("inner")
			second := submit(st, s, "Q-two")
			if mode == "sync" {
				st.Model.Release("inner")
			}
			st.Gate("task")
			st.Model.Release("task")
			one, two := brief(first()), brief(second())
			st.Model.Release("inner")
			if one != "completed A-sub" || two != "failed: 400 two broke" {
				t.Errorf("the outcomes are %s and %s", one, two)
			}
		})
	}
}

// TestQueuedBehindAutopilot: the messages with which the CLI continues in autopilot mode belong to the turn that they
// continue.
func TestQueuedBehindAutopilot(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("Q-auto", harness.Say("working")),
		fails("Q-two", "two broke"),
		harness.Rule{When: offlinemodel.When{Tools: []string{"task_complete"}}, WaitFor: "later",
			Reply: harness.Steps(harness.Say("still working"))})
	s := st.Create(copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	if _, err := cliv1.NewSessionModeServiceClient(st.Conn()).Set(st.Ctx, &cliv1.SessionModeServiceSetRequest{
		SessionId: s.ID(), Mode: cliv1.SessionMode_SESSION_MODE_AUTOPILOT,
	}); err != nil {
		t.Fatal(err)
	}
	first := submit(st, s, "Q-auto")
	st.Gate("later")
	second := submit(st, s, "Q-two")
	st.Model.Release("later")
	if one, two := brief(first()), brief(second()); one != "completed still working" || two != "failed: 400 two broke" {
		t.Errorf("the outcomes are %s and %s", one, two)
	}
}

// TestRunEndsWithItsTurn: the stream of a Run has its turn and none of the events of the message that waits behind it.
func TestRunEndsWithItsTurn(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("Q-one"), WaitFor: "one", Reply: harness.Steps(harness.Say("A1"))},
		harness.OnUser("Q-three", harness.Say("A3")))
	s := st.Create(copilot.SessionOptions{})
	run := s.Run(st.Ctx, "Q-one")
	var seen []string
	var second func() *copilot.Outcome
	for ev, err := range run.Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch event := ev.GetEvent(); event.GetEventType() {
		case "assistant.turn_start":
			st.Gate("one")
			second = submit(st, s, "Q-three")
			st.Model.Release("one")
		case "user.message":
			seen = append(seen, event.GetUserMessage().GetContent())
		case "assistant.message":
			seen = append(seen, event.GetAssistantMessage().GetContent())
		}
	}
	out, err := run.Outcome()
	if err != nil || brief(out) != "completed A1" || strings.Join(seen, " ") != "Q-one A1" {
		t.Errorf("the run streams %q and ends as %v, %v", seen, out, err)
	}
	if got := brief(second()); got != "completed A3" {
		t.Errorf("the message behind it ends as %s", got)
	}
}

// A prompt that is sent when the abort has returned is not part of what was aborted, also if the CLI has not said yet
// that it is idle. What was queued is, and ends, although the CLI never says that it is idle in between.
func TestPromptBehindAnAbort(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := st.Create(copilot.SessionOptions{Config: st.Config()})
	for i := range 10 {
		ended := st.GoTurn(s, "slow")
		st.Gate("never")
		behind := submit(st, s, "behind")
		if running, err := s.Abort(st.Ctx); err != nil || !running {
			t.Fatalf("abort: %v, %v", running, err)
		}
		text := fmt.Sprint("again ", i)
		if got := brief(st.Say(s, text)); got != "completed You said: "+text {
			t.Errorf("the prompt behind the abort: %s", got)
		}
		if got := ended().Status(); got != copilot.TurnAborted {
			t.Errorf("the aborted turn: %v", got)
		}
		if got := behind().Status(); got != copilot.TurnAborted {
			t.Errorf("what was queued: %v", got)
		}
	}
}

// TestActivityTellsOfAborts: the CLI says that it works while a turn runs, and that it does not once an abort has ended
// everything. By that the watchdog tells a prompt that an abort removed from one that is still to be taken up.
func TestActivityTellsOfAborts(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := st.Create(copilot.SessionOptions{Config: st.Config()})
	metadata := cliv1.NewSessionMetadataServiceClient(st.Conn())
	works := func() bool {
		t.Helper()
		activity, err := metadata.Activity(st.Ctx, &cliv1.SessionMetadataServiceActivityRequest{SessionId: s.ID()})
		if err != nil {
			t.Fatal(err)
		}
		return activity.GetHasActiveWork()
	}
	ended := st.GoTurn(s, "slow")
	st.Gate("never")
	behind := submit(st, s, "behind")
	if !works() {
		t.Error("the CLI says that it does nothing while a turn runs")
	}
	if _, err := s.Abort(st.Ctx); err != nil {
		t.Fatal(err)
	}
	ended()
	behind()
	if works() {
		t.Error("the CLI says that it works after an abort")
	}
}

// TestSeveralMessagesOfOneCall: one turn takes all messages of a call. The message before them has its own answer, and its turn
// ends before they are taken up.
func TestSeveralMessagesOfOneCall(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.Rule{When: harness.WhenUser("Q-one"), WaitFor: "one", Reply: harness.Steps(harness.Say("A1"))},
		harness.OnUser("Q-four", harness.Say("A4")))
	s := st.Create(copilot.SessionOptions{})
	first := submit(st, s, "Q-one")
	st.Gate("one")
	call := &cliv1.SessionServiceSendMessagesRequest{SessionId: s.ID()}
	for _, text := range []string{"Q-two", "Q-three", "Q-four"} {
		call.Messages = append(call.Messages, &cliv1.SendMessageItem{Prompt: text})
	}
	reply, err := cliv1.NewSessionServiceClient(st.Client.Conn()).SendMessages(st.Ctx, call)
	if err != nil || len(reply.GetMessageIds()) != len(call.Messages) {
		t.Fatalf("%v, %v", reply, err)
	}
	st.Model.Release("one")
	if got := brief(first()); got != "completed A1" {
		t.Errorf("the first message has the outcome %q", got)
	}
	st.First(s, "session.idle")
	var texts []string
	for _, e := range st.All(s, "user.message", "assistant.message") {
		texts = append(texts, e.GetEvent().GetUserMessage().GetContent()+e.GetEvent().GetAssistantMessage().GetContent())
	}
	if got := strings.Join(texts, " "); got != "Q-one A1 Q-two Q-three Q-four A4" {
		t.Errorf("the conversation is %s", got)
	}
}
