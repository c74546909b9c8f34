package runtime

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// stallBound is how long turns may be silent on an impatient host: longer than a CLI on a
// loaded machine takes from one event to the next (more than 2 s have been seen).
const stallBound = 8 * time.Second

// impatient is a host on which turns stall soon.
func impatient(c *app.Config) { c.StallTimeout, c.ModelCallTimeout = stallBound, stallBound }

// TestModelThatNeverAnswers: the turn ends as stalled, also for who sent the message, and
// the next one is not held up.
func TestModelThatNeverAnswers(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: impatient},
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := st.Create(copilot.SessionOptions{})
	watch := st.Callbacks(s.ID())
	ended := st.GoTurn(s, "slow")
	stalled := bridgev1.TurnStatus_TURN_STATUS_STALLED
	if out := watch.Turn(1); out.GetStatus() != stalled {
		t.Errorf("the subscriber was told %v", out)
	}
	if out := ended(); out.Status() != copilot.TurnStalled {
		t.Errorf("the sender was told %v", out)
	}
	if out := st.Say(s, "and on"); out.Text() != "You said: and on" {
		t.Errorf("the agent said %q", out.Text())
	}
	for _, ev := range st.All(s, "abort") {
		if ev.GetCause() != bridgev1.EventCause_EVENT_CAUSE_BRIDGE {
			t.Errorf("%v is not said to be the bridge's own", ev)
		}
	}
}

// TestPatienceWithTools: a tool may take longer than a turn may be silent.
func TestPatienceWithTools(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: impatient},
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	works := harness.NewHold()
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "worked")}})
	ended := st.GoSay(s, "work")
	harness.Await(st, works.Asked, "the tool's call")
	time.Sleep(stallBound + 2*time.Second) // the time in which nothing happens is what is tested
	works.Release()
	if out := ended(); out.Text() != "worked" {
		t.Errorf("the agent said %q", out.Text())
	}
}

// TestPatienceWithTheCLIsTools: the same for one of the CLI's own, which only the CLI knows to run.
func TestPatienceWithTheCLIsTools(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: impatient},
		harness.OnUser("list",
			harness.Call("bash",
				harness.Shell(fmt.Sprintf("sleep %d; echo done by the shell", int(stallBound.Seconds())+2)))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	if out := st.Say(s, "list"); !strings.Contains(out.Text(), "done by the shell") {
		t.Errorf("the turn ended as %v", out)
	}
}

// TestApprovedAfterAKill: the approval of the CLI's own shell tool, after the CLI was
// killed and resumed. CLI 1.0.81 has been seen to take it and to say nothing any more; the
// turn ends even so, and the session goes on.
func TestApprovedAfterAKill(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: impatient},
		harness.OnUser("list", harness.Call("bash", harness.Shell("echo done by the shell"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	leave := harness.NewHold()
	s := st.Create(copilot.SessionOptions{OnPermission: leave.Permission})
	st.Begin(s, "list")
	harness.Await(st, leave.Asked, "the permission request")
	st.Written(s)
	st.Kill(s.ID())
	watch := st.Callbacks(s.ID())
	leave.Release()
	stalled := bridgev1.TurnStatus_TURN_STATUS_STALLED
	if out := watch.Turn(1); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED &&
		(!st.Before("1.0.82") || out.GetStatus() != stalled) {
		t.Errorf("the turn ended as %v", out)
	}
	if out := st.Say(s, "and on"); out.Text() != "You said: and on" {
		t.Errorf("the agent said %q", out.Text())
	}
}

// TestKilledBetweenAnAnswerAndItsCall: the CLI wrote down that a caller's tool had answered, and was killed before it wrote
// the end of the call. The process that resumes the session waits for that end in vain; the next prompt does not.
func TestKilledBetweenAnAnswerAndItsCall(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Change: impatient}, harness.OnUser("and on", harness.Say("went on")),
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	works := harness.NewHold()
	works.Release()
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "worked")}})
	if out := st.Say(s, "work"); out.Text() != "worked" {
		t.Fatalf("the agent said %q", out.Text())
	}
	st.Written(s)
	record := filepath.Join(st.Host.Home, "session-state", s.ID(), "events.jsonl")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := bytes.Cut(text, []byte(`"external_tool.completed"`))
	if !found {
		t.Skip("this CLI does not record that a tool has answered")
	}
	end := len(before) + bytes.IndexByte(text[len(before):], '\n') + 1
	if err := os.Truncate(record, int64(end)); err != nil {
		t.Fatal(err)
	}
	st.Kill(s.ID())
	if out := st.Say(s, "and on"); out.Text() != "went on" {
		t.Errorf("the agent said %q: %v", out.Text(), out)
	}
}
