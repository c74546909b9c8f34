package session

import (
	"context"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A waiter for a turn that has ended returns its outcome, also when the caller's patience ends at the
// same moment.
func TestEnded(t *testing.T) {
	t.Parallel()
	want := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 { // select chooses at random
		if got := EndedWaiter(want).Wait(over, time.Nanosecond); got.Status != want.Status {
			t.Fatalf("the outcome is %v", got)
		}
	}
}
