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

// TestNothingContinues: who asks for a turn that nobody continues leaves nothing.
func TestNothingContinues(t *testing.T) {
	t.Parallel()
	s := New(Config{ID: "s1", Host: &fixture{}})
	if w := s.turns.continuing(); w != nil || s.turns.machine.Waiting() {
		t.Errorf("the waiter is %v; one is left: %v", w, s.turns.machine.Waiting())
	}
}
