package bridge

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A watcher that is slow loses the oldest events, and the first event after them has their number.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
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
					r.fleet.Telemetry().Publish(fleet.Notice{
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
		if r.fleet.Telemetry().Active() {
			t.Error("somebody watches still")
		}
	}
}
