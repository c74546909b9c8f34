package manage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// errSeen ends a stream that has shown what it was watched for.
var errSeen = errors.New("seen")

// Watchers receive the telemetry and host events of their own tenant's CLI processes only. Sessions of other
// tenants with the same id, and the host's owner, do not matter.
func TestNoticesAreATenantsOwn(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
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
			r.Fleet().Telemetry(), `{"sessionId":"same","event":{}}`,
		},
		"host events": {
			func(ctx context.Context, session string, tell func(string) error) error {
				return r.Runtimes.WatchHostEvents(ctx, &bridgev1.WatchHostEventsRequest{SessionId: session}, func(w *bridgev1.WatchHostEventsResponse) error {
					return tell(w.GetRuntimeId())
				})
			},
			r.Fleet().HostEvents(), `{"scope":{"type":"session","sessionId":"same"},"kind":"task_transition"}`,
		},
	}
	tenants := []string{caller.HostTenant, "acme", "rival"}
	for kind, k := range kinds {
		for _, session := range []string{"", "same"} {
			first := map[string]chan string{}
			for _, tenant := range tenants {
				begun, came := make(chan struct{}), make(chan string, 1)
				first[tenant] = came
				r.Spawn(func() {
					ctx := caller.With(r.Context(), caller.Caller{Tenant: tenant, Role: caller.Admin})
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
					if !errors.Is(err, errSeen) && r.Context().Err() == nil {
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

// A watcher that is slow loses the oldest events, and the first event after them has their number.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	const more = 10
	type got struct {
		lost int64
		text string
	}
	var seen []got
	for session, want := range map[string]int{"": fleet.NoticeQueue, "s": fleet.NoticeQueue, "other": 0} {
		seen = nil
		beats := 0
		ctx, cancel := context.WithCancel(t.Context())
		q := &bridgev1.WatchTelemetryRequest{SessionId: session}
		err := r.Runtimes.WatchTelemetry(ctx, q, func(w *bridgev1.WatchTelemetryResponse) error {
			if w.GetRuntimeId() == "" {
				beats++
				for i := range fleet.NoticeQueue + more {
					r.Fleet().Telemetry().Publish(fleet.Notice{
						SessionID: "s", RuntimeID: "rt", Params: fmt.Appendf(nil, `{"sessionId":"s","event":{"kind":"%d"}}`, i),
					})
				}
				if want == 0 {
					cancel()
				}
				return nil
			}
			if seen = append(seen, got{w.GetLost(), w.GetEvent().GetEvent().GetKind()}); len(seen) == want {
				return errSeen
			}
			return nil
		})
		cancel()
		if beats != 1 || len(seen) != want || want > 0 && !errors.Is(err, errSeen) {
			t.Fatalf("session %q: %d events and %d heartbeats, and then %v", session, len(seen), beats, err)
		}
		for i, e := range seen {
			if want := (got{0, fmt.Sprint(i + more)}); i > 0 && e != want || i == 0 && e != (got{more, want.text}) {
				t.Fatalf("session %q: event %d is %v", session, i, e)
			}
		}
		if r.Fleet().Telemetry().Active() {
			t.Error("somebody watches still")
		}
	}
}
