package e2e

import (
	"context"
	"slices"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

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
