package bridge

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// errSeen ends a stream that has shown what it was watched for.
var errSeen = errors.New("seen")

// Watchers receive the telemetry and host events of their own tenant's CLI processes only. Sessions of other
// tenants with the same id, and the host's owner, do not matter.
func TestNoticesAreATenantsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	// Each stream hands on its sign of life and then the runtime of the first event it is sent.
	kinds := map[string]struct {
		watch func(ctx context.Context, session string, tell func(runtime string) error) error
		hub   *broadcast.Hub[fleet.Notice]
		text  string
	}{
		"telemetry": {
			func(ctx context.Context, session string, tell func(string) error) error {
				return r.Runtimes.WatchTelemetry(ctx, &bridgev1.WatchTelemetryRequest{SessionId: session}, func(w *bridgev1.WatchTelemetryResponse) error {
					return tell(w.GetRuntimeId())
				})
			},
			r.fleet.Telemetry(), `{"sessionId":"same","event":{}}`,
		},
		"host events": {
			func(ctx context.Context, session string, tell func(string) error) error {
				return r.Runtimes.WatchHostEvents(ctx, &bridgev1.WatchHostEventsRequest{SessionId: session}, func(w *bridgev1.WatchHostEventsResponse) error {
					return tell(w.GetRuntimeId())
				})
			},
			r.fleet.HostEvents(), `{"scope":{"type":"session","sessionId":"same"},"kind":"task_transition"}`,
		},
	}
	tenants := []string{caller.HostTenant, "acme", "rival"}
	for kind, k := range kinds {
		for _, session := range []string{"", "same"} {
			first := map[string]chan string{}
			for _, tenant := range tenants {
				begun, came := make(chan struct{}), make(chan string, 1)
				first[tenant] = came
				r.streams.Go(func() {
					ctx := caller.With(r.ctx, caller.Caller{Tenant: tenant, Role: caller.Admin})
					live := false
					err := k.watch(ctx, session, func(runtime string) error {
						if !live {
							live = true
							close(begun)
							return nil
						}
						came <- runtime
						return errSeen
					})
					if !errors.Is(err, errSeen) && r.ctx.Err() == nil {
						came <- fmt.Sprint("failed: ", err)
					}
				})
				<-begun
			}
			// The first event that a stream is sent is its own tenant's: others told theirs before.
			for _, tenant := range []string{"rival", caller.HostTenant, "acme"} {
				k.hub.Publish(fleet.Notice{Tenant: tenant, SessionID: "same", RuntimeID: "of " + tenant, Params: []byte(k.text)})
			}
			for _, tenant := range tenants {
				if got := <-first[tenant]; got != "of "+tenant {
					t.Errorf("%s, session %q: a watcher of %q is told what was said %q", kind, session, tenant, got)
				}
			}
		}
	}
}
