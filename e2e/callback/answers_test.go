package callback

import (
	"context"
	"slices"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestFirstValidAnswerWins has two clients asked, of which one answers first with what is
// not valid.
func TestFirstValidAnswerWins(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
		harness.OnResult("bash", harness.Say("done")))
	s := st.Create(copilot.SessionOptions{})
	a := st.Attach(harness.JoinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	b := st.Attach(harness.JoinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
	turn := st.GoSay(s, "touch")
	asked := a.Requested()
	if also := b.Requested(); also.GetCallbackId() != asked.GetCallbackId() {
		t.Fatalf("one is asked %v, the other %v", asked, also)
	}
	if to := asked.GetParticipantIds(); !slices.Contains(to, a.ID) || !slices.Contains(to, b.ID) {
		t.Errorf("asked of %q, want %q and %q", to, a.ID, b.ID)
	}
	tool, _ := copilot.AnswerTool("what?")
	if f := a.Answer(asked.GetCallbackId(),
		tool).Failed; f.GetReason() != bridgev1.ErrorReason_ERROR_REASON_ANSWER_INVALID {
		t.Errorf("the invalid answer: %v", f)
	}
	approve := copilot.AnswerPermission(copilot.ApproveOnce())
	if reply := b.Answer(asked.GetCallbackId(), approve); reply.Done == nil {
		t.Fatalf("the valid answer: %v", reply.Failed)
	}
	for _, one := range []*harness.Attached{a, b} {
		over := one.Resolved(asked.GetCallbackId())
		if over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED || over.GetParticipantId() != b.ID {
			t.Errorf("resolved as %v, want by %q", over, b.ID)
		}
	}
	late := a.Answer(asked.GetCallbackId(), copilot.AnswerPermission(copilot.Reject(""))).Failed
	if late.GetReason() != bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED {
		t.Errorf("the late answer: %v", late)
	}
	turn()
	if !st.Exists("made") {
		t.Error("the command did not run")
	}
}

// TestRaceOfAnswers has many callers answer one callback at once: one wins, the others get CALLBACK_RESOLVED.
func TestRaceOfAnswers(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
		harness.OnResult("bash", harness.Say("done")))
	s := st.Create(copilot.SessionOptions{SessionHandlers: &bridgev1.Handlers{Permission: true}})
	turn := st.GoSay(s, "touch")
	asked := st.Pending(s, 1)[0]
	const racers = 8
	errs := make(chan error, racers)
	for range racers {
		go func() {
			errs <- s.Resolve(st.Ctx, asked.GetCallbackId(), copilot.AnswerPermission(copilot.ApproveOnce()))
		}()
	}
	won := 0
	for range racers {
		if err := <-errs; err == nil {
			won++
		} else {
			harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED)
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
	st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
		harness.OnResult("bash", harness.Say("done")))
	abstained := make(chan struct{})
	s := st.Create(copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			close(abstained)
			return nil, copilot.ErrAbstain
		},
	})
	other := st.Join(s.ID(), copilot.SessionOptions{
		OnPermission: func(ctx context.Context, _ *copilot.PermissionRequest) (*copilot.Decision, error) {
			select {
			case <-abstained:
				return copilot.ApproveOnce(), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	})
	frames := st.Callbacks(s.ID())
	st.Say(s, "touch")
	asked := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
	over := frames.Resolved(asked.GetCallbackId())
	if over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED ||
		over.GetParticipantId() != other.ParticipantID() {
		t.Errorf("resolved as %v", over)
	}
}

// TestHandlerIsToldThatItsAnswerIsNoLongerWanted: by an abort, and by another participant's answer.
func TestHandlerIsToldThatItsAnswerIsNoLongerWanted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		end  func(*harness.Scripted, *copilot.Session) error
		want copilot.CallbackOutcome
	}{
		"abort": {
			func(st *harness.Scripted, s *copilot.Session) error { _, err := s.Abort(st.Ctx); return err },
			copilot.CallbackWithdrawn,
		},
		"answer of another": {
			func(st *harness.Scripted, s *copilot.Session) error {
				answer, err := copilot.AnswerTool("I was faster")
				if err != nil {
					return err
				}
				return s.Resolve(st.Ctx, st.Pending(s, 1)[0].GetCallbackId(), answer)
			},
			copilot.CallbackAnswered,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("wait", harness.Call("waits", nil)),
				harness.OnResult("waits", harness.Say("{{tool_result}}")))
			begun, cause := make(chan struct{}), make(chan error, 1)
			s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
				copilot.NewTool("waits", "Waits", func(ctx context.Context, _ struct{}) (string, error) {
					close(begun)
					<-ctx.Done()
					cause <- context.Cause(ctx)
					return "", ctx.Err()
				}, copilot.SkipPermission()),
			}})
			turn := st.GoTurn(s, "wait")
			harness.Await(st, begun, "the tool's call")
			if err := end.end(st, s); err != nil {
				t.Fatal(err)
			}
			why, ok := harness.Await(st, cause, "the end of the tool's context").(*copilot.WithdrawnError)
			if !ok || why.Outcome != end.want {
				t.Errorf("the tool was told %v", why)
			}
			turn()
		})
	}
}
