package attach

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// exactSender is a sender that a test scripts.
type exactSender func(requestID string) (*cliv1.SessionServiceSendResponse, journal.Position)

func (f exactSender) StartSend(
	_ context.Context, _ *session.Session, _ *cliv1.SessionServiceSendRequest, requestID string,
	done func(*cliv1.SessionServiceSendResponse, journal.Position, error),
) {
	result, at := f(requestID)
	done(result, at, nil)
}

// exactly is a participation in the session s1.
func exactly(exact bool, f exactSender) *Attachment {
	return &Attachment{
		svc: New(Config{Exactly: f}), name: "s1", start: &bridgev1.AttachStart{Exact: exact}, life: context.Background(),
	}
}

func TestExactSendRefusals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		exact   bool
		request *cliv1.SessionServiceSendRequest
		field   string
	}{
		{false, &cliv1.SessionServiceSendRequest{SessionId: "s1"}, "command.exact_send"},
		{true, &cliv1.SessionServiceSendRequest{SessionId: "s2"}, "command.exact_send.session_id"},
		{true, &cliv1.SessionServiceSendRequest{}, "command.exact_send.session_id"},
		{true, &cliv1.SessionServiceSendRequest{SessionId: "s1", Wait: proto.Bool(true)}, "command.exact_send.wait"},
	} {
		c := &bridgev1.AttachCommand{Command: &bridgev1.AttachCommand_ExactSend{ExactSend: tc.request}}
		a := exactly(tc.exact, nil)
		if a.sends(c) {
			t.Errorf("%v is sent", tc.request)
		}
		_, err := a.command(t.Context(), c)
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Reason != fault.InvalidField || f.Field != tc.field {
			t.Errorf("%v: %v, want INVALID_FIELD of %s", tc.request, err, tc.field)
		}
	}
}

// The reply has the CLI's result and position, or the CLI's error.
func TestExactSend(t *testing.T) {
	t.Parallel()
	a := exactly(true, func(requestID string) (*cliv1.SessionServiceSendResponse, journal.Position) {
		result := &cliv1.SessionServiceSendResponse{MessageId: "m of " + requestID, JsonExtra: `{"x":1}`}
		return result, journal.Position{Epoch: 3, Seq: 4}
	})
	c := &bridgev1.AttachCommand{RequestId: "r1", Command: &bridgev1.AttachCommand_ExactSend{
		ExactSend: &cliv1.SessionServiceSendRequest{SessionId: "s1"},
	}}
	done, err := async.Wait(t.Context(), func(done func(*bridgev1.AttachDone, error)) { a.send(t.Context(), nil, c, done) })
	if err != nil || done.GetMessageId() != "m of r1" || done.GetSendResult().GetJsonExtra() != `{"x":1}` ||
		done.GetPosition().GetEpoch() != 3 || done.GetPosition().GetSeq() != 4 {
		t.Errorf("%v, %v", done, err)
	}
	failed := failedFrame(&bridgev1.AttachFailed{}, fault.New(fault.CLIError, "busy").WithRPC(
		fault.RPC{Code: -32098, Message: "busy", Data: `{"a":1}`})).GetFailed()
	want := &bridgev1.JsonRpcError{Code: -32098, Message: "busy", DataJson: `{"a":1}`}
	if !proto.Equal(failed.GetRpcError(), want) {
		t.Errorf("the error is %v", failed)
	}
}
