package session

import (
	"errors"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A message that the CLI does not answer, although it answers all else, does not keep the next
// ones of its session waiting for good.
func TestUnansweredMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: "session.send", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultHang}}}})
	r.open(Opening{})
	r.s.turns.Machine().Bounds.Send = 300 * time.Millisecond // enough for the CLI to receive the message, however busy the machine is
	_, err := r.s.sender.Send(t.Context(), message("nobody hears it"))
	wantReason(t, err, fault.SendUnconfirmed)
	if !errors.Is(err, sending.ErrUnsettled) {
		t.Errorf("it is not told that it may have been taken up: %v", err)
	}
	r.s.turns.Machine().Bounds.Send = time.Minute
	if out := r.send(message("hello")).Waiter.Wait(t.Context(), 0); out.Status != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next one's turn is %v", out.Status)
	}
}
