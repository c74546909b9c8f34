package manage_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// TestDisconnectsMeet: sessions end and are opened again at the same time. The bridge's list of disconnected sessions looks at each
// of them, and each tells the list of its end.
func TestDisconnectsMeet(t *testing.T) {
	t.Parallel()
	b := bridgetest.New(t, fakecli.Script{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for n := range 4 {
		id := fmt.Sprint("s", n)
		b.Create(id)
		b.Ask(id, "hello") // of a session without a message there is nothing to open
		for range 2 {
			callers.Go(func() {
				for range 200 {
					_, err := b.Sessions.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: id, Force: true})
					if err == nil || fault.ReasonOf(err) == fault.SessionNotFound { // the other caller was faster
						_, err = b.Sessions.ResumeSession(ctx, &bridgev1.ResumeSessionRequest{SessionId: id})
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	callers.Wait()
}
