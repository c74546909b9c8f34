package runtime

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// tidy is a host that unloads sessions soon.
func tidy(c *app.Config) { c.IdleUnload = time.Second }

// runs reports whether a process does. One that has ended may still be without a wait of its present parent.
func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, found := strings.Cut(string(stat), ") ")
	return err == nil && found && !strings.HasPrefix(state, "Z")
}

// unloaded waits until no runtime has a session.
func unloaded(st *harness.Scripted, s *copilot.Session) {
	st.T.Helper()
	st.Eventually("the session to be unloaded",
		func() bool { return state(st, s) == copilot.StateUnloaded })
}

func state(st *harness.Scripted, s *copilot.Session) copilot.SessionState {
	st.T.Helper()
	now, err := s.Get(st.Ctx)
	if err != nil {
		st.T.Fatal(err)
	}
	return now.State
}

// TestIdleSessionComesBack: with its configuration, in the same positions, and without an action of a client. The
// streams stay.
func TestIdleSessionComesBack(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: tidy}, harness.OnUser("work", harness.Call("work", nil)),
		harness.OnResult("work", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{Config: particular(st),
		Tools: []copilot.Tool{harness.Answering("work", "done")}})
	first := st.Say(s, "first")
	watch := st.Callbacks(s.ID())
	for range 2 {
		unloaded(st, s)
		if out := st.Say(s, "work"); out.Text() != "done" {
			t.Errorf("the agent said %q", out.Text())
		} else if a, b := first.Proto.GetEndPosition(), out.Proto.GetEndPosition(); a.GetEpoch() != b.GetEpoch() ||
			a.GetSeq() >= b.GetSeq() {
			t.Errorf("the positions are %v, then %v", a, b)
		}
		wantWhole(st, "work")
	}
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "first") {
		t.Errorf("the model was told %q", texts)
	}
	watch.Mu.Lock()
	defer watch.Mu.Unlock()
	if watch.Closed != nil || len(watch.Restart) > 0 {
		t.Errorf("the stream was told of %v, %v", watch.Closed, watch.Restart)
	}
	for _, ev := range st.All(s, "session.shutdown", "session.resume") {
		if ev.GetCause() != bridgev1.EventCause_EVENT_CAUSE_BRIDGE {
			t.Errorf("%v is not said to be the bridge's own", ev)
		}
	}
}

// TestUnusedSessionComesBack: the CLI keeps nothing of it.
func TestUnusedSessionComesBack(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: tidy})
	s := st.Create(copilot.SessionOptions{Config: particular(st),
		Tools: []copilot.Tool{harness.Answering("work", "done")}})
	unloaded(st, s)
	if out := st.Say(s, "hello"); out.Text() != "You said: hello" {
		t.Errorf("the agent said %q", out.Text())
	}
	wantWhole(st, "work")
}

// TestApprovalsComeBack: the CLI forgets that all is approved.
func TestApprovalsComeBack(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: tidy},
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{
		Tools: []copilot.Tool{copilot.NewTool("works", "Works",
			func(context.Context, struct{}) (string, error) { return "worked", nil })},
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.Reject("nobody is to be asked"), nil
		},
	})
	permissions := cliv1.NewSessionPermissionsServiceClient(st.Client.Conn())
	if _, err := permissions.SetApproveAll(st.Ctx,
		&cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: s.ID(), Enabled: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out := st.Say(s, "work"); out.Text() != "worked" {
			t.Errorf("the agent said %q", out.Text())
		}
		unloaded(st, s)
	}
}

// TestShellOfAKilledRuntime: what the agent had begun ends with its runtime.
func TestShellOfAKilledRuntime(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.OnUser("wait", harness.Call("bash", harness.Shell("echo $$ > shell.pid; sleep 1000"))))
	s := st.Create(copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.ApproveOnce(), nil
		},
	})
	ended := st.GoTurn(s, "wait")
	var pid int
	st.Eventually("the shell", func() bool {
		if !st.Exists("shell.pid") {
			return false
		}
		n, err := strconv.Atoi(strings.TrimSpace(st.Read("shell.pid")))
		pid = n
		return err == nil
	})
	st.Kill(s.ID())
	if out := ended(); out.Status() != copilot.TurnRuntimeLost {
		t.Errorf("the turn ended as %v", out)
	}
	st.Eventually("the end of the shell", func() bool { return !runs(pid) })
	if out := st.Say(s, "and on"); out.Text() != "You said: and on" {
		t.Errorf("the agent said %q", out.Text())
	}
}

// TestQueuedMessageOfAKilledRuntime: it was in the CLI's memory only, and goes to the next process, before later
// messages.
func TestQueuedMessageOfAKilledRuntime(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := st.Create(copilot.SessionOptions{})
	st.Say(s, "first")
	st.Written(s)
	ended := st.GoTurn(s, "slow")
	st.Gate("never")
	queued := &bridgev1.SendRequest{SessionId: s.ID(), RequestId: "r1", Prompt: &bridgev1.Prompt{Text: "queued"}}
	first, err := st.Client.Sessions().Send(st.Ctx, queued)
	if err != nil {
		t.Fatal(err)
	}
	st.Kill(s.ID())
	if out := ended(); out.Status() != copilot.TurnRuntimeLost {
		t.Errorf("the running turn ended as %v", out)
	}
	st.Say(s, "and on")
	again, err := st.Client.Sessions().Send(st.Ctx, queued)
	if err != nil || again.GetMessageId() != first.GetMessageId() || again.GetResentMessageId() == "" {
		t.Errorf("the repeated request is answered %v, %v; it was %v", again, err, first)
	}
	var said []string
	for _, ev := range st.All(s, "user.message") {
		said = append(said, ev.GetEvent().GetUserMessage().GetContent())
	}
	if want := []string{"first", "slow", "queued", "and on"}; !slices.Equal(said, want) {
		t.Errorf("the conversation has %q, want %q", said, want)
	}
}

// TestWhatKeepsASessionLoaded: a shell in the background, a schedule, a question.
func TestWhatKeepsASessionLoaded(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: tidy, Raw: true},
		harness.OnUser("shell",
			harness.Call("bash",
				map[string]any{"command": "sleep 30", "description": "waits", "mode": "async", "shellId": "s1"})),
		harness.OnResult("bash", harness.Say("it runs")),
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	approve := func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
		return copilot.ApproveOnce(), nil
	}
	shelled := st.Create(copilot.SessionOptions{OnPermission: approve})
	if _, err := shelled.Send(st.Ctx, "shell"); err != nil {
		t.Fatal(err)
	}
	scheduled := st.Create(copilot.SessionOptions{})
	st.Say(scheduled, "hello")
	if _, err := st.Client.Raw().Invoke(st.Ctx, &bridgev1.InvokeRequest{
		SessionId: scheduled.ID(), Method: "session.schedule.add",
		ParamsJson: `{"interval":"1h","prompt":"again","recurring":true}`,
	}); err != nil {
		t.Fatal(err)
	}
	works := harness.NewHold() // never released
	asked := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "")}})
	st.Begin(asked, "work")
	harness.Await(st, works.Asked, "the tool's call")
	for range 2 { // sessions that became idle later are unloaded, so the sweep has looked at the others
		idle := st.Create(copilot.SessionOptions{})
		st.Say(idle, "hello")
		unloaded(st, idle)
	}
	for name, s := range map[string]*copilot.Session{"shell": shelled, "schedule": scheduled, "question": asked} {
		if got := state(st, s); got != copilot.StateLoaded {
			t.Errorf("the session with a %s is %v", name, got)
		}
	}
}

// TestOldRuntimeIsReplaced: its sessions move when nothing goes on in them.
func TestOldRuntimeIsReplaced(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t,
		harness.HostConfig{Change: func(c *app.Config) { c.MaxRuntimeAge = 4 * time.Second }},
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	before := st.Ready()
	if len(before) != 1 {
		t.Fatalf("the runtimes are %v", before)
	}
	works := harness.NewHold()
	s := st.Create(copilot.SessionOptions{Config: particular(st), Tools: []copilot.Tool{works.Tool("works", "worked")}})
	ended := st.GoSay(s, "work")
	harness.Await(st, works.Asked, "the tool's call")
	other := st.Create(copilot.SessionOptions{})
	st.Say(other, "hello")
	unloaded(st, other) // its runtime is old by now, and nothing goes on in it
	st.Say(other, "and on")
	old := func(rt *bridgev1.RuntimeInfo) bool { return rt.GetPid() == before[0].GetPid() }
	all := st.Runtimes()
	if i := slices.IndexFunc(all, old); i < 0 || len(all) < 2 ||
		all[i].GetState() != bridgev1.RuntimeState_RUNTIME_STATE_STOPPING {
		t.Errorf("with a session on the old runtime and one elsewhere the runtimes are %v", all)
	}
	works.Release()
	if out := ended(); out.Text() != "worked" {
		t.Errorf("the agent said %q", out.Text())
	}
	st.Eventually("the end of the old runtime", func() bool { return !slices.ContainsFunc(st.Runtimes(), old) })
	if out := st.Say(s, "and on"); out.Text() != "You said: and on" {
		t.Errorf("the agent said %q", out.Text())
	}
	wantWhole(st, "works")
}

// TestDeafRuntimeIsReplaced: it lives and says nothing.
func TestDeafRuntimeIsReplaced(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: func(c *app.Config) {
		c.PingInterval, c.PingTimeout = 200*time.Millisecond, 2*time.Second
	}})
	s := st.Create(copilot.SessionOptions{Config: particular(st),
		Tools: []copilot.Tool{harness.Answering("work", "done")}})
	st.Say(s, "hello")
	st.Written(s)
	watch := st.Callbacks(s.ID())
	pid := int(st.Ready()[0].GetPid())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if r := watch.Restarted(); r.GetCause() == "" {
		t.Error("nobody says why")
	}
	st.Say(s, "and on")
	wantWhole(st, "work")
	if runs(pid) {
		t.Errorf("process %d still runs", pid)
	}
}

// TestFatRuntimeIsEnded: its memory is looked at with the first ping, 15 s after its start.
func TestFatRuntimeIsEnded(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: func(c *app.Config) { c.KillRSS = 1 << 20 }})
	s := st.Create(copilot.SessionOptions{})
	if r := st.Callbacks(s.ID()).Restarted(); !strings.Contains(r.GetCause(), "memory") {
		t.Errorf("the cause is %q", r.GetCause())
	}
}
