package copilot_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func TestSendIsRepeatedUnderTheSameRequestID(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	var ids []string
	f.send = func(_ context.Context, req *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
		ids = append(ids, req.GetRequestId())
		if len(ids) == 1 {
			return nil, failure(codes.Unavailable, "RUNTIME_LOST", "restarting",
				&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)})
		}
		if p := req.GetPrompt(); p.GetText() != "hi" || p.GetMode() != cliv1.SendMode_SEND_MODE_IMMEDIATE ||
			len(p.GetAttachments()) != 1 || p.GetSource() != "test" {
			t.Errorf("prompt = %v", p)
		}
		return &bridgev1.SendResponse{MessageId: "m1", Position: pos(1, 7)}, nil
	}
	s := c.Session("s1")
	resp, err := s.Send(testContext(t), "hi", copilot.Immediately(), copilot.WithAttachments(&cliv1.Attachment{}),
		copilot.WithPrompt(func(p *bridgev1.Prompt) { p.Source = "test" }))
	if err != nil || resp.GetMessageId() != "m1" {
		t.Errorf("send = %v, %v", resp, err)
	}
	if len(ids) != 2 || ids[0] != ids[1] || ids[0] == "" {
		t.Errorf("request ids %q", ids)
	}
	if s.Position().GetSeq() != 7 {
		t.Errorf("position = %v", s.Position())
	}
}

func TestRefusedSendIsNotRepeated(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	tries := 0
	f.send = func(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
		tries++
		return nil, failure(codes.InvalidArgument, "PROMPT_EMPTY", "say something",
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "prompt.text"}}})
	}
	_, err := c.Session("s1").Send(testContext(t), "")
	var e *copilot.Error
	if !errors.As(err, &e) || e.Code != codes.InvalidArgument || e.Field != "prompt.text" ||
		e.Reason != bridgev1.ErrorReason_ERROR_REASON_PROMPT_EMPTY || e.Metadata["session_id"] != "s1" {
		t.Errorf("err = %#v", err)
	}
	if tries != 1 {
		t.Errorf("%d tries", tries)
	}
}

func TestSendAndWaitSurvivesABrokenConnection(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	tries := 0
	f.sendAndWait = func(
		ctx context.Context, req *bridgev1.SendAndWaitRequest,
	) (*bridgev1.SendAndWaitResponse, error) {
		if tries++; tries == 1 {
			return nil, failure(codes.Unavailable, "", "cut")
		}
		if req.GetIdleTimeout().AsDuration() != time.Minute || req.GetTimeout().AsDuration() != time.Hour {
			t.Errorf("request = %v", req)
		}
		if err := grpc.SetTrailer(ctx, metadata.Pairs("copilot-position", "2/11")); err != nil {
			return nil, err
		}
		return &bridgev1.SendAndWaitResponse{MessageId: "m1", Outcome: &bridgev1.TurnOutcome{
			Status: bridgev1.TurnStatus_TURN_STATUS_FAILED,
			Error:  &bridgev1.TurnError{ErrorType: "rate_limit", Message: "slow down"},
		}}, nil
	}
	s := c.Session("s1")
	out, err := s.SendAndWait(testContext(t), "hi", copilot.WithIdleTimeout(time.Minute),
		copilot.WithTimeout(time.Hour))
	if err != nil || out.MessageID != "m1" {
		t.Fatalf("outcome = %v, %v", out, err)
	}
	if err := out.Err(); err == nil || err.Error() != "copilot: turn failed: rate_limit: slow down" {
		t.Errorf("err = %v", err)
	}
	if copilot.ComparePositions(s.Position(), pos(2, 11)) != 0 {
		t.Errorf("position = %v", s.Position())
	}
}

func TestResolveCarriesARequestID(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	f.resolve = func(req *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
		if req.GetRequestId() == "" || req.GetCallbackId() != "cb" || req.GetAnswer().GetTool().GetText() != `{"n":1}` {
			t.Errorf("request = %v", req)
		}
		return nil, failure(codes.FailedPrecondition, "CALLBACK_RESOLVED", "over")
	}
	answer, err := copilot.AnswerTool(map[string]int{"n": 1})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Session("s1").Resolve(testContext(t), "cb", answer)
	if !copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_CALLBACK_RESOLVED) {
		t.Errorf("err = %v", err)
	}
}

func TestApproveAndReject(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	answers := make(chan *bridgev1.Answer, 2)
	f.resolve = func(req *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
		answers <- req.GetAnswer()
		return &bridgev1.ResolveResponse{}, nil
	}
	s := c.Session("s1")
	err := errors.Join(
		s.Resolve(testContext(t), "1", copilot.AnswerApprove()),
		s.Resolve(testContext(t), "2", copilot.AnswerReject("no")))
	if err != nil {
		t.Fatal(err)
	}
	if yes, no := <-answers, <-answers; yes.GetApprove() == nil || no.GetReject().GetFeedback() != "no" {
		t.Errorf("answers %v and %v", yes, no)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want copilot.Error
		text string
	}{
		"of the server": {
			failure(codes.NotFound, "SESSION_NOT_FOUND", "no such session"),
			copilot.Error{Code: codes.NotFound, Reason: bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND},
			"copilot: NotFound SESSION_NOT_FOUND: no such session",
		},
		"with a field": {
			failure(codes.InvalidArgument, "INVALID_FIELD", "too long",
				&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "name"}}}),
			copilot.Error{
				Code: codes.InvalidArgument, Reason: bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, Field: "name",
			},
			`copilot: InvalidArgument INVALID_FIELD (field "name"): too long`,
		},
		"to be tried again": {
			failure(codes.Unavailable, "CLI_CRASH_LOOP", "later",
				&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Minute)}),
			copilot.Error{
				Code: codes.Unavailable, Reason: bridgev1.ErrorReason_ERROR_REASON_CLI_CRASH_LOOP,
				RetryAfter: time.Minute,
			},
			"copilot: Unavailable CLI_CRASH_LOOP: later",
		},
		"of the connection": {
			status.Error(codes.Unavailable, "refused"),
			copilot.Error{Code: codes.Unavailable}, "copilot: Unavailable: refused",
		},
		"newer than the client": {
			failure(codes.Internal, "NEW_TROUBLE", "oh"), copilot.Error{Code: codes.Internal},
			"copilot: Internal: oh",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e *copilot.Error
			if err := copilot.FromError(tc.err); !errors.As(err, &e) {
				t.Fatalf("err = %v", err)
			}
			if e.Code != tc.want.Code || e.Reason != tc.want.Reason || e.Field != tc.want.Field ||
				e.RetryAfter != tc.want.RetryAfter || e.Error() != tc.text {
				t.Errorf("got %v %+v", e, e)
			}
			if status.Code(e) != tc.want.Code {
				t.Errorf("status code = %v", status.Code(e))
			}
		})
	}
	var e *copilot.Error
	if errors.As(copilot.FromError(failure(codes.Internal, "NEW_TROUBLE", "oh")),
		&e); e.Metadata["reason"] != "NEW_TROUBLE" {
		t.Errorf("metadata = %v", e.Metadata)
	}
	if err := copilot.FromError(nil); err != nil {
		t.Errorf("nil became %v", err)
	}
}
