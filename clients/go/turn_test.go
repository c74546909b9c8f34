package copilot_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func runStarted(seq uint64) *bridgev1.RunResponse {
	return &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Started{
		Started: &bridgev1.RunStarted{SessionId: "s1", MessageId: "m1", Position: pos(1, seq)},
	}}
}

func runEvents(seqs ...uint64) *bridgev1.RunResponse {
	return &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Stream{Stream: events(seqs...)}}
}

func runOutcome(status bridgev1.TurnStatus, text string) *bridgev1.RunResponse {
	return &bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Outcome{
		Outcome: &bridgev1.TurnOutcome{Status: status, Text: text},
	}}
}

// settled is what a turn came to.
type settled struct {
	out *copilot.Outcome
	err error
}

func outcome(turn *copilot.Turn) <-chan settled {
	ch := make(chan settled, 1)
	go func() {
		out, err := turn.Outcome()
		ch <- settled{out, err}
	}()
	return ch
}

func TestRunFollowsATurnOverABrokenStream(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	turn := c.Session("s1").Run(testContext(t), "hello", copilot.WithTurnEvents(
		&bridgev1.EventFilter{ExcludeEphemeral: true}, nil))
	ch := collect(turn.Events())
	r := next(t, f.runs)
	id := r.req.GetRequestId()
	if r.req.GetPrompt().GetText() != "hello" || r.req.GetSessionId() != "s1" ||
		!r.req.GetFilter().GetExcludeEphemeral() {
		t.Errorf("request = %v", r.req)
	}
	r.send(runStarted(3), runEvents(4, 5))
	wantSeqs(t, ch, 4, 5)
	r.end <- failure(codes.Unavailable, "", "cut")
	r = next(t, f.runs)
	if r.req.GetRequestId() != id || id == "" {
		t.Errorf("request id %q, then %q", id, r.req.GetRequestId())
	}
	r.send(runStarted(3), runEvents(4, 5, 6), runOutcome(bridgev1.TurnStatus_TURN_STATUS_COMPLETED, "hi"))
	wantSeqs(t, ch, 6)
	wantEnd(t, ch)
	out, err := turn.Outcome()
	if err != nil || out.Err() != nil || out.Text != "hi" || out.MessageID != "m1" {
		t.Errorf("outcome = %v, %v", out, err)
	}
	for _, err := range turn.Events() {
		if err == nil {
			t.Error("the events came twice")
		}
	}
}

func TestOutcomeAloneRunsTheTurn(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ch := outcome(c.Session("s1").Run(testContext(t), "hello"))
	next(t, f.runs).send(runStarted(3), runEvents(4), runOutcome(bridgev1.TurnStatus_TURN_STATUS_ABORTED, ""))
	got := receive(t, ch, "outcome")
	var oe *copilot.OutcomeError
	if got.err != nil || !errors.As(got.out.Err(), &oe) ||
		oe.Outcome.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_ABORTED {
		t.Errorf("outcome = %v, %v", got.out, got.err)
	}
}

func TestTurnFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		reason bridgev1.ErrorReason
	}{
		"refused": {
			failure(codes.InvalidArgument, "PROMPT_EMPTY", "say something"),
			bridgev1.ErrorReason_ERROR_REASON_PROMPT_EMPTY,
		},
		"in doubt": {
			failure(codes.Aborted, "SEND_UNCONFIRMED", "nobody knows"),
			bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := newFake(t)
			ch := outcome(c.Session("s1").Run(testContext(t), ""))
			next(t, f.runs).end <- tc.err
			if got := receive(t, ch, "error"); !copilot.IsReason(got.err, tc.reason) {
				t.Errorf("err = %v", got.err)
			}
		})
	}
}

func TestTurnEndsWithItsContextOrLoop(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	ctx, cancel := context.WithCancel(testContext(t))
	ch := outcome(c.Session("s1").Run(ctx, "hello"))
	next(t, f.runs)
	cancel()
	if got := receive(t, ch, "error"); !errors.Is(got.err, context.Canceled) {
		t.Errorf("err = %v", got.err)
	}

	turn := c.Session("s1").Run(testContext(t), "hello")
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for range turn.Events() {
			break
		}
	}()
	r := next(t, f.runs)
	r.send(runEvents(4))
	<-broken
	<-r.out.Context().Done()
	if _, err := turn.Outcome(); err == nil {
		t.Error("a turn that was broken off has an outcome")
	}
}
