package runtime

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// breakerLimit is how many failures in succession open the circuit breaker, and breakerStable how long a CLI must live
// not to count as one.
const (
	breakerLimit  = 5
	breakerStable = time.Minute
)

// TestKillsBetweenTurns kills the CLI as often as opens the circuit breaker, each time within a minute of its start. A
// turn that completed in each of them keeps the breaker closed. Without one, and with turns that failed or did not end,
// the breaker opens.
func TestKillsBetweenTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// between is what the session does in each CLI.
		between func(st *harness.Scripted, s *copilot.Session)
		opens   bool
	}{
		"completed turns": {between: func(st *harness.Scripted, s *copilot.Session) { st.Say(s, "hello") }},
		"no turns":        {between: func(*harness.Scripted, *copilot.Session) {}, opens: true},
		"unended turns": {between: func(st *harness.Scripted, s *copilot.Session) {
			st.Begin(s, "slow")
			st.Gate("never")
		}, opens: true},
		"failed turns": {between: func(st *harness.Scripted, s *copilot.Session) {
			out, err := s.SendAndWait(st.Ctx, "fail")
			if err != nil || out.Status() != copilot.TurnFailed {
				st.T.Fatalf("the turn is %v, %v", out, err)
			}
		}, opens: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewOwnScripted(t, harness.HostConfig{},
				harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))},
				harness.Rule{When: harness.WhenUser("fail"), Error: &offlinemodel.Failure{Status: 400, Message: "broken"}})
			s := st.Create(copilot.SessionOptions{Config: st.Config()})
			killed := int64(0)
			for range breakerLimit {
				var cli *bridgev1.RuntimeInfo
				st.Eventually("another CLI", func() bool {
					ready := st.Ready()
					if len(ready) > 0 {
						cli = ready[0]
					}
					return cli != nil && cli.GetPid() != killed
				})
				c.between(st, s)
				if lived := time.Since(cli.GetStartTime().AsTime()); lived >= breakerStable {
					t.Skipf("NOT RUN: this machine is too slow, the CLI lived for %v", lived)
				}
				killed = cli.GetPid()
				if err := syscall.Kill(int(killed), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			st.Eventually("the end of the last CLI", func() bool {
				return !slices.ContainsFunc(st.Ready(), func(rt *bridgev1.RuntimeInfo) bool { return rt.GetPid() == killed })
			})
			// The library would repeat the call until the breaker closes.
			out, err := bridgev1.NewSessionServiceClient(st.Conn()).SendAndWait(st.Ctx,
				&bridgev1.SendAndWaitRequest{SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "hello"}})
			if c.opens {
				e := harness.WantError(t, err, codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_CLI_CRASH_LOOP)
				if e.RetryAfter <= 0 || e.RetryAfter > time.Minute {
					t.Errorf("the time to retry is %v", e.RetryAfter)
				}
				return
			}
			if err != nil || out.GetOutcome().GetText() != "You said: hello" {
				t.Errorf("the agent said %v, %v", out, err)
			}
		})
	}
}
