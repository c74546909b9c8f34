package manage_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// openOrCreate does what the libraries do: resume a session, and create it if it does not exist.
func openOrCreate(t *testing.T, r *bridgetest.Bridge, id string) (tries int, err error) {
	for tries = 1; tries <= 3; tries++ {
		_, err = r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: id})
		if fault.ReasonOf(err) != fault.SessionNotFound {
			return tries, err
		}
		_, err = r.Sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: id})
		if fault.ReasonOf(err) != fault.SessionExists {
			return tries, err
		}
	}
	return tries, err
}

// Callers that open or create the same session at the same time all have it, and there is one.
func TestOpenOrCreateAtOnce(t *testing.T) {
	t.Parallel()
	delayed := fakecli.Script{Faults: []fakecli.MethodFault{
		{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 3}},
		{Method: "session.create", Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 5}},
	}}
	r := bridgetest.New(t, delayed)
	for round := range 20 {
		id := fmt.Sprint("s", round)
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				if tries, err := openOrCreate(t, r, id); err != nil {
					t.Errorf("%s, after %d tries: %v", id, tries, err)
				}
			})
		}
		callers.Wait()
		if out := r.Ask(id, "hello"); out == nil {
			t.Errorf("%s has no turn", id)
		}
	}
	if n := bridgetest.Received(r.FakeCLI(), "session.create"); n != 20 {
		t.Errorf("20 sessions were created %d times", n)
	}
}

// A create waits while a resume looks for the session, and fails only if there is one.
func TestCreateWaitsForASearch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := bridgetest.New(t, fakecli.Script{Faults: []fakecli.MethodFault{
			{Method: "session.resume", Times: 1, Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: 10_000}},
		}})
		resumed := make(chan error, 1)
		go func() {
			_, err := r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s1"})
			resumed <- err
		}()
		time.Sleep(time.Second)
		if _, err := r.Sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: "s1"}); err != nil {
			t.Errorf("the session is not created: %v", err)
		}
		if err := <-resumed; fault.ReasonOf(err) != fault.SessionNotFound {
			t.Errorf("the resume ends with %v", err)
		}
	})
}
