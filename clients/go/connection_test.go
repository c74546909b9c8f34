package copilot_test

import (
	"testing"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestConnectionChangesAreReported(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	changes := make(chan copilot.ConnectionChange, 8)
	_, a := session(t, f, c, copilot.SessionOptions{OnConnection: func(change copilot.ConnectionChange) {
		changes <- change
		panic("the function of a program") // which ends neither the program nor the reports
	}})
	want := func(state copilot.ConnectionState) copilot.ConnectionChange {
		t.Helper()
		got := receive(t, changes, state.String())
		if got.State != state {
			t.Fatalf("change = %v, want %v", got.State, state)
		}
		return got
	}

	a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_RuntimeRestarted{
		RuntimeRestarted: &bridgev1.RuntimeRestarted{TurnOutcome: &bridgev1.TurnOutcome{Text: "half"}},
	}})
	if got := want(copilot.RuntimeRestarted); got.TurnOutcome.Text() != "half" {
		t.Errorf("outcome = %v", got.TurnOutcome)
	}
	a.end <- failure(codes.Unavailable, "", "cut")
	if got := want(copilot.ConnectionBroken); got.Err == nil {
		t.Error("no reason")
	}
	a = f.attached(t)
	want(copilot.ConnectionRestored)
	a.end <- failure(codes.Unavailable, "", "cut")
	want(copilot.ConnectionBroken)
	receive(t, f.attaches, "attach stream").end <- failure(codes.NotFound, "PARTICIPANT_NOT_FOUND", "too late")
	f.attached(t)
	want(copilot.ParticipantExpired)
}
