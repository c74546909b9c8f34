package copilot_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
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
	if err != nil || out.Err() != nil || out.Text() != "hi" || out.MessageID != "m1" {
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
		oe.Outcome.Status() != copilot.TurnAborted {
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

// Deltas yields the texts of the session's own agent: deltas, or whole messages that had none.
func TestDeltas(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	turn := c.Session("s1").Run(testContext(t), "hello")
	texts := make(chan string)
	go func() {
		defer close(texts)
		for text, err := range turn.Deltas() {
			if err != nil {
				t.Error(err)
			}
			texts <- text
		}
	}()
	r := next(t, f.runs)
	r.send(runStarted(3))
	seq := uint64(3)
	for _, event := range []*cliv1.SessionEvent{
		delta("m1", "Hel", ""), delta("m2", "not mine", "sub"), delta("m1", "lo", ""), message("m1", "Hello", ""),
		message("m2", "not mine", "sub"), message("m3", "", ""), message("m4", " World", ""),
	} {
		seq++
		r.send(&bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Stream{Stream: &bridgev1.SubscribeResponse{
			Frame: &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{
				Events: []*bridgev1.Event{{Position: pos(1, seq), Event: event}},
			}},
		}}})
	}
	r.send(&bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Stream{Stream: &bridgev1.SubscribeResponse{
		Frame: &bridgev1.SubscribeResponse_Gap{Gap: &bridgev1.Gap{Through: pos(1, 20)}},
	}}}, runOutcome(bridgev1.TurnStatus_TURN_STATUS_COMPLETED, "World"))
	r.end <- nil
	var all []string
	for text := range texts {
		all = append(all, text)
	}
	if got := strings.Join(all, "|"); got != "Hel|lo| World" {
		t.Errorf("deltas = %q", got)
	}
	if out, err := turn.Outcome(); err != nil || out.Text() != "World" {
		t.Errorf("outcome = %v, %v", out, err)
	}
}

func delta(message, text, agent string) *cliv1.SessionEvent {
	return &cliv1.SessionEvent{AgentId: &agent, Data: &cliv1.SessionEvent_AssistantMessageDelta{
		AssistantMessageDelta: &cliv1.AssistantMessageDeltaData{MessageId: message, DeltaContent: text},
	}}
}

func message(id, text, agent string) *cliv1.SessionEvent {
	return &cliv1.SessionEvent{AgentId: &agent, Data: &cliv1.SessionEvent_AssistantMessage{
		AssistantMessage: &cliv1.AssistantMessageData{MessageId: id, Content: text},
	}}
}

// The text of a turn is written as it comes. An error of the writer, or of the turn, is returned.
func TestWriteText(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	write := func(w io.Writer, end error) settled {
		ch := make(chan settled, 1)
		turn := c.Session("s1").Run(testContext(t), "hello")
		go func() {
			out, err := turn.WriteText(w)
			ch <- settled{out, err}
		}()
		r := next(t, f.runs)
		r.send(runStarted(3))
		for i, event := range []*cliv1.SessionEvent{delta("m1", "Hel", ""), delta("m1", "lo", "")} {
			r.send(&bridgev1.RunResponse{Frame: &bridgev1.RunResponse_Stream{Stream: &bridgev1.SubscribeResponse{
				Frame: &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{
					Events: []*bridgev1.Event{{Position: pos(1, uint64(i)+4), Event: event}},
				}},
			}}})
		}
		if end == nil {
			r.send(runOutcome(bridgev1.TurnStatus_TURN_STATUS_COMPLETED, "Hello"))
		}
		r.end <- end
		return <-ch
	}
	var text strings.Builder
	if got := write(&text, nil); got.err != nil || got.out.String() != "completed: Hello" || text.String() != "Hello" {
		t.Errorf("wrote %q, outcome %v, %v", &text, got.out, got.err)
	}
	text.Reset()
	refused := failure(codes.FailedPrecondition, "", "refused")
	if got := write(&text, refused); got.err == nil || got.out != nil || text.String() != "Hello" {
		t.Errorf("refused: wrote %q, outcome %v, %v", &text, got.out, got.err)
	}
	closed, w := io.Pipe()
	_ = closed.Close()
	if got := write(w, nil); !errors.Is(got.err, io.ErrClosedPipe) || got.out != nil {
		t.Errorf("closed writer: outcome %v, %v", got.out, got.err)
	}
}
