package runtime

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// continued returns the first TurnContinued of a session.
func continued(st *harness.Scripted, client *copilot.Client, id string) *bridgev1.TurnContinued {
	st.T.Helper()
	ctx, cancel := context.WithCancel(st.Ctx)
	defer cancel()
	whole := &bridgev1.SessionCursor{SessionId: id, Filter: &bridgev1.EventFilter{ExcludeAll: true}}
	stream, err := client.EventStreams().Subscribe(ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{whole}})
	if err != nil {
		st.T.Fatal(err)
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			st.T.Fatalf("the stream ended without TurnContinued: %v", err)
		}
		if told := frame.GetTurnContinued(); told != nil {
			return told
		}
	}
}

// interrupting are a turn that ends with the process, and the reply to the continuation.
func interrupting() []harness.Rule {
	return []harness.Rule{
		{When: harness.WhenUser("deploy"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))},
		harness.OnUser("The process that ran you ended", harness.Say("deployed")),
	}
}

// wantDeployed checks that a turn ended with the reply to the continuation.
func wantDeployed(t *testing.T, out *copilot.Outcome) {
	t.Helper()
	if out.Status() != copilot.TurnCompleted || out.Text() != "deployed" {
		t.Errorf("the sender received %v", out)
	}
}

// recorded waits until the CLI has recorded so many events of a type: otherwise the last one is lost with its process.
func recorded(st *harness.Scripted, home, id, eventType string, events int) {
	st.T.Helper()
	st.Eventually("the CLI's record of "+eventType, func() bool {
		n := 0
		for _, e := range harness.ReadRecord(st.T, filepath.Join(home, "session-state", id, "events.jsonl")) {
			if e.Type == eventType {
				n++
			}
		}
		return n >= events
	})
}

// An agent whose CLI process is killed in a turn continues once, and its model still knows the task.
func TestTurnContinuesInAnotherProcess(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{}, interrupting()...)
	s := st.Create(copilot.SessionOptions{InterruptedTurns: copilot.InterruptionContinue})
	st.Say(s, "first")
	ended := st.GoTurn(s, "deploy")
	st.Gate("never")
	recorded(st, st.Host.Home, s.ID(), "user.message", 2)
	restarted := st.Kill(s.ID())
	wantDeployed(t, ended())
	lost := restarted.GetTurnOutcome().GetEndPosition()
	said := st.First(s, "assistant.message", copilot.After(lost)).GetEvent().GetAssistantMessage()
	if said.GetContent() != "deployed" {
		t.Errorf("the agent said %q", said.GetContent())
	}
	told := continued(st, st.Client, s.ID())
	message := st.First(s, "user.message", copilot.After(lost)).GetEvent().GetUserMessage()
	if told.GetAttempt() != 1 || told.GetMessageId() == "" {
		t.Errorf("readers received %v", told)
	}
	if id := message.GetMessageId(); id != told.GetMessageId() && !st.Before("1.0.82") {
		t.Errorf("the message has the id %q, readers received %v", id, told)
	}
	texts := strings.Join(harness.UserTexts(st), "\n")
	if !strings.Contains(texts, "deploy") {
		t.Errorf("the model received %q, without the task", texts)
	}
	if n := strings.Count(texts, "The process that ran you ended"); n != 1 {
		t.Errorf("the model received the continuation %d times", n)
	}
	if out := st.Say(s, "and on"); out.Text() != "You said: and on" {
		t.Errorf("then the agent said %q", out.Text())
	}
}

// So is an agent whose server is killed, when the server starts again: no caller has to come back for that.
func TestTurnContinuesAfterARestart(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, interrupting()...)
	d := harness.NewDaemon(st, "--provider", oldProvider(st))
	config := st.Config()
	config.Provider = nil
	_, err := d.Client.Sessions().CreateSession(st.Ctx, &bridgev1.CreateSessionRequest{
		SessionId: "s", Config: config, ProviderRef: "ours",
		OnInterruption: bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.SayTo("s", "first")
	waiting, err := copilot.Dial(st.Ctx, "unix:"+filepath.Join(d.Root, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = waiting.Close() })
	ended := st.GoTurn(waiting.Session("s"), "deploy")
	st.Gate("never")
	recorded(st, filepath.Join(d.Root, "home"), "s", "user.message", 2)
	d.Crash()
	wantDeployed(t, ended())
	if told := continued(st, d.Client, "s"); told.GetAttempt() != 1 {
		t.Errorf("readers received %v", told)
	}
	d.SayTo("s", "and on")
	if texts := harness.UserTexts(st); !slices.ContainsFunc(texts, isContinuation) {
		t.Errorf("the model received %q", texts)
	}
}

func isContinuation(text string) bool {
	return strings.Contains(text, "The process that ran you ended")
}

// The model learns which tool call has no result.
func TestInterruptedToolCall(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.OnUser("deploy", harness.Call("bash", harness.Shell("touch started; sleep 10"))),
		harness.OnUser("The process that ran you ended", harness.Say("deployed")))
	s := st.Create(copilot.SessionOptions{
		InterruptedTurns: copilot.InterruptionContinue, OnPermission: copilot.ApproveAll,
	})
	st.Say(s, "first")
	st.Begin(s, "deploy")
	st.Eventually("the command", func() bool { return st.Exists("started") })
	recorded(st, st.Host.Home, s.ID(), "user.message", 2)
	lost := st.Kill(s.ID()).GetTurnOutcome().GetEndPosition()
	st.First(s, "session.idle", copilot.After(lost))
	for id, result := range st.ToolResults() {
		if !strings.Contains(result, "interrupted") {
			t.Errorf("the model received %q as the result of %s", result, id)
		}
	}
	if len(st.ToolResults()) != 1 {
		t.Errorf("the model received %v", st.ToolResults())
	}
}

// Run streams on until the end of the continued turn, also if the process of that is killed, too. The agent is told three
// times at most; the outcome is then that of the last turn.
func TestRunFollowsContinuedTurns(t *testing.T) {
	t.Parallel()
	for _, kills := range []int{1, 2, 4} {
		t.Run(strconv.Itoa(kills), func(t *testing.T) {
			t.Parallel()
			rules := []harness.Rule{{When: harness.WhenUser("deploy"), WaitFor: "gate 1", Reply: harness.Steps(harness.Say("never"))}}
			for i := 2; i <= kills; i++ {
				rules = append(rules, harness.Rule{When: harness.WhenUser("The process that ran you ended"), Times: 1,
					WaitFor: "gate " + strconv.Itoa(i), Reply: harness.Steps(harness.Say("never"))})
			}
			st := harness.NewOwnScripted(t, harness.HostConfig{},
				append(rules, harness.OnUser("The process that ran you ended", harness.Say("deployed")))...)
			s := st.Create(copilot.SessionOptions{InterruptedTurns: copilot.InterruptionContinue})
			st.Say(s, "first")
			turn := s.Run(st.Ctx, "deploy")
			said := make(chan string)
			go func() {
				var all strings.Builder
				for ev, err := range turn.Events() {
					if err != nil {
						break
					}
					all.WriteString(ev.GetEvent().GetAssistantMessage().GetContent())
				}
				said <- all.String()
			}()
			for i := 1; i <= kills; i++ {
				st.Gate("gate " + strconv.Itoa(i))
				recorded(st, st.Host.Home, s.ID(), "user.message", i+1)
				st.Kill(s.ID())
			}
			text := <-said
			out, err := turn.Outcome()
			if err != nil {
				t.Fatal(err)
			}
			if kills > 3 {
				if out.Status() != copilot.TurnRuntimeLost {
					t.Errorf("the outcome is %v", out)
				}
				return
			}
			wantDeployed(t, out)
			if text != "deployed" {
				t.Errorf("the stream had %q", text)
			}
		})
	}
}

// A turn with a pending tool call goes on in the next process when the call is answered. Its caller waits for that.
func TestWaitFollowsThePendingToolCall(t *testing.T) {
	t.Parallel()
	st, s := asking(t, harness.OnResult("works", harness.Say("It {{tool_result}}.")))
	if _, err := st.Client.Sessions().ResumeSession(st.Ctx, &bridgev1.ResumeSessionRequest{
		SessionId: s.ID(), OnInterruption: bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE,
	}); err != nil {
		t.Fatal(err)
	}
	st.Say(s, "first")
	ended := st.GoTurn(s, "work")
	pending := st.Pending(s, 1)
	recorded(st, st.Host.Home, s.ID(), "external_tool.requested", 1)
	st.Kill(s.ID())
	answer, err := copilot.AnswerTool("worked")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resolve(st.Ctx, pending[0].GetCallbackId(), answer); err != nil {
		t.Fatal(err)
	}
	if out := ended(); out.Text() != "It worked." {
		t.Errorf("the sender received %v", out)
	}
}
