package e2e

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
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// tidy is a host that unloads sessions soon.
func tidy(c *app.Config) { c.IdleUnload = time.Second }

// until looks at something until it holds. Only for what nobody tells.
func (st *stage) until(what string, holds func() bool) {
	st.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-st.ctx.Done():
			st.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// runs tells whether a process does. One that has ended may not have been waited for, by
// whoever is its parent by now.
func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, state, found := strings.Cut(string(stat), ") ")
	return err == nil && found && !strings.HasPrefix(state, "Z")
}

// unloaded waits until no runtime has a session.
func (st *stage) unloaded(s *copilot.Session) {
	st.t.Helper()
	st.until("the session to be unloaded", func() bool { return st.state(s) == bridgev1.SessionState_SESSION_STATE_UNLOADED })
}

func (st *stage) state(s *copilot.Session) bridgev1.SessionState {
	st.t.Helper()
	now, err := s.Get(st.ctx)
	if err != nil {
		st.t.Fatal(err)
	}
	return now.GetState()
}

// TestIdleSessionComesBack: with its configuration, in the same positions, and without
// anybody having to do anything. The streams stay.
func TestIdleSessionComesBack(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: tidy}, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	first := st.say(s, "first")
	watch := st.callbacks(s.ID())
	for range 2 {
		st.unloaded(s)
		if out := st.say(s, "work"); out.GetText() != "done" {
			t.Errorf("the agent said %q", out.GetText())
		} else if a, b := first.GetEndPosition(), out.GetEndPosition(); a.GetEpoch() != b.GetEpoch() || a.GetSeq() >= b.GetSeq() {
			t.Errorf("the positions are %v, then %v", a, b)
		}
		wantWhole(st, "work")
	}
	if texts := strings.Join(userTexts(st), " "); !strings.Contains(texts, "first") {
		t.Errorf("the model was told %q", texts)
	}
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if watch.closed != nil || len(watch.restart) > 0 {
		t.Errorf("the stream was told of %v, %v", watch.closed, watch.restart)
	}
	for _, ev := range st.all(s, "session.shutdown", "session.resume") {
		if ev.GetCause() != bridgev1.EventCause_EVENT_CAUSE_BRIDGE {
			t.Errorf("%v is not said to be the bridge's own", ev)
		}
	}
}

// TestUnusedSessionComesBack: the CLI keeps nothing of it.
func TestUnusedSessionComesBack(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: tidy})
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	st.unloaded(s)
	if out := st.say(s, "hello"); out.GetText() != "You said: hello" {
		t.Errorf("the agent said %q", out.GetText())
	}
	wantWhole(st, "work")
}

// TestApprovalsComeBack: the CLI forgets that all is approved.
func TestApprovalsComeBack(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: tidy}, onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")))
	s := st.create(copilot.SessionOptions{
		Tools: []copilot.Tool{copilot.NewTool("works", "Works", func(context.Context, struct{}) (string, error) { return "worked", nil })},
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.Reject("nobody is to be asked"), nil
		},
	})
	permissions := cliv1.NewSessionPermissionsServiceClient(st.client.Conn())
	if _, err := permissions.SetApproveAll(st.ctx, &cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: s.ID(), Enabled: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out := st.say(s, "work"); out.GetText() != "worked" {
			t.Errorf("the agent said %q", out.GetText())
		}
		st.unloaded(s)
	}
}

// TestShellOfAKilledRuntime: what the agent had begun ends with its runtime.
func TestShellOfAKilledRuntime(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, onUser("wait", call("bash", shell("echo $$ > shell.pid; sleep 1000"))))
	s := st.create(copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.ApproveOnce(), nil
		},
	})
	ended := st.goTurn(s, "wait")
	var pid int
	st.until("the shell", func() bool {
		if !st.exists("shell.pid") {
			return false
		}
		n, err := strconv.Atoi(strings.TrimSpace(st.read("shell.pid")))
		pid = n
		return err == nil
	})
	st.kill(s.ID())
	if out := ended(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the turn ended as %v", out)
	}
	if runs(pid) {
		t.Errorf("process %d still runs", pid)
	}
	if out := st.say(s, "and on"); out.GetText() != "You said: and on" {
		t.Errorf("the agent said %q", out.GetText())
	}
}

// TestQueuedMessageOfAKilledRuntime: it was in the CLI's memory only, and is given to the next
// process, before what comes later.
func TestQueuedMessageOfAKilledRuntime(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, rule{When: whenUser("slow"), WaitFor: "never", Reply: steps(say("never"))})
	s := st.create(copilot.SessionOptions{})
	st.say(s, "first")
	st.written(s)
	ended := st.goTurn(s, "slow")
	st.gate("never")
	queued := &bridgev1.SendRequest{SessionId: s.ID(), RequestId: "r1", Prompt: &bridgev1.Prompt{Text: "queued"}}
	first, err := st.client.Sessions().Send(st.ctx, queued)
	if err != nil {
		t.Fatal(err)
	}
	st.kill(s.ID())
	if out := ended(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the running turn ended as %v", out)
	}
	st.say(s, "and on")
	again, err := st.client.Sessions().Send(st.ctx, queued)
	if err != nil || again.GetMessageId() != first.GetMessageId() || again.GetResentMessageId() == "" {
		t.Errorf("the repeated request is answered %v, %v; it was %v", again, err, first)
	}
	var said []string
	for _, ev := range st.all(s, "user.message") {
		said = append(said, ev.GetEvent().GetUserMessage().GetContent())
	}
	if want := []string{"first", "slow", "queued", "and on"}; !slices.Equal(said, want) {
		t.Errorf("the conversation has %q, want %q", said, want)
	}
}

// TestWhatKeepsASessionLoaded: a shell in the background, a schedule, a question.
func TestWhatKeepsASessionLoaded(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: tidy, raw: true},
		onUser("shell", call("bash", map[string]any{"command": "sleep 30", "description": "waits", "mode": "async", "shellId": "s1"})),
		onResult("bash", say("it runs")),
		onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")))
	approve := func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
		return copilot.ApproveOnce(), nil
	}
	shelled := st.create(copilot.SessionOptions{OnPermission: approve})
	if _, err := shelled.Send(st.ctx, "shell"); err != nil {
		t.Fatal(err)
	}
	scheduled := st.create(copilot.SessionOptions{})
	st.say(scheduled, "hello")
	if _, err := st.client.Raw().Invoke(st.ctx, &bridgev1.InvokeRequest{
		SessionId: scheduled.ID(), Method: "session.schedule.add", ParamsJson: `{"interval":"1h","prompt":"again","recurring":true}`,
	}); err != nil {
		t.Fatal(err)
	}
	works := newHold() // never released
	asked := st.create(copilot.SessionOptions{Tools: []copilot.Tool{works.tool("works", "")}})
	st.begin(asked, "work")
	await(st, works.asked, "the tool's call")
	idle := st.create(copilot.SessionOptions{})
	st.say(idle, "hello")
	st.unloaded(idle)
	time.Sleep(3 * time.Second) // more than it takes, were they idle
	for name, s := range map[string]*copilot.Session{"shell": shelled, "schedule": scheduled, "question": asked} {
		if got := st.state(s); got != bridgev1.SessionState_SESSION_STATE_LOADED {
			t.Errorf("the session with a %s is %v", name, got)
		}
	}
}

// TestOldRuntimeIsReplaced: its sessions move when nothing goes on in them.
func TestOldRuntimeIsReplaced(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: func(c *app.Config) { c.MaxRuntimeAge = 4 * time.Second }},
		onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")))
	before := st.ready()
	if len(before) != 1 {
		t.Fatalf("the runtimes are %v", before)
	}
	works := newHold()
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{works.tool("works", "worked")}})
	ended := st.goSay(s, "work")
	await(st, works.asked, "the tool's call")
	other := st.create(copilot.SessionOptions{})
	st.say(other, "hello")
	st.unloaded(other) // its runtime is old by now, and nothing goes on in it
	st.say(other, "and on")
	old := func(rt *bridgev1.Runtime) bool { return rt.GetPid() == before[0].GetPid() }
	all := st.runtimes()
	if i := slices.IndexFunc(all, old); i < 0 || len(all) < 2 || all[i].GetState() != bridgev1.RuntimeState_RUNTIME_STATE_STOPPING {
		t.Errorf("with a session on the old runtime and one elsewhere the runtimes are %v", all)
	}
	works.release()
	if out := ended(); out.GetText() != "worked" {
		t.Errorf("the agent said %q", out.GetText())
	}
	st.until("the end of the old runtime", func() bool { return !slices.ContainsFunc(st.runtimes(), old) })
	if out := st.say(s, "and on"); out.GetText() != "You said: and on" {
		t.Errorf("the agent said %q", out.GetText())
	}
	wantWhole(st, "works")
}

// TestDeafRuntimeIsReplaced: it lives and says nothing.
func TestDeafRuntimeIsReplaced(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: func(c *app.Config) {
		c.PingInterval, c.PingTimeout = 200*time.Millisecond, 2*time.Second
	}})
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	st.say(s, "hello")
	st.written(s)
	watch := st.callbacks(s.ID())
	pid := int(st.ready()[0].GetPid())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if r := watch.restarted(); r.GetCause() == "" {
		t.Error("nobody says why")
	}
	st.say(s, "and on")
	wantWhole(st, "work")
	if runs(pid) {
		t.Errorf("process %d still runs", pid)
	}
}

// TestFatRuntimeIsEnded: whatever goes on in it.
func TestFatRuntimeIsEnded(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{change: func(c *app.Config) { c.PingInterval, c.KillRSS = 5*time.Second, 1<<20 }})
	s := st.create(copilot.SessionOptions{})
	st.say(s, "hello")
	st.written(s)
	if r := st.callbacks(s.ID()).restarted(); r.GetCause() == "" {
		t.Error("nobody says why")
	}
}
