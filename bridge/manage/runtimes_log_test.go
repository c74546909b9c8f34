package manage_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A watch of the log has the earlier warnings, then the later ones, and a gap for a slow reader. It ends with the
// server's drain.
func TestWatchServerLog(t *testing.T) {
	t.Parallel()
	ring := manage.NewWarnings(func(s string) string { return s })
	log := slog.New(ring.Handler(slog.NewTextHandler(io.Discard, nil)))
	r := bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) { c.Warnings = ring })
	log.Warn("before")
	frames, opened, err := make(chan *bridgev1.WatchServerLogResponse), make(chan struct{}), make(chan error, 1)
	r.Spawn(func() {
		err <- r.Runtimes.WatchServerLog(r.Context(), &bridgev1.WatchServerLogRequest{}, func() error {
			close(opened)
			return nil
		}, func(f *bridgev1.WatchServerLogResponse) error {
			select {
			case frames <- f:
				return nil
			case <-r.Context().Done():
				return r.Context().Err()
			}
		})
	})
	<-opened
	if f := <-frames; f.GetRecord().GetMessage() != "before" {
		t.Errorf("at first: %v", f)
	}
	for range manage.MaxWarnings + 7 { // the reader reads nothing
		log.Warn("after")
	}
	if f := <-frames; f.GetCaughtUp() == nil {
		t.Errorf("after the first records: %v", f)
	}
	if f := <-frames; f.GetGap().GetLost() != 7 {
		t.Errorf("a slow reader gets %v", f)
	}
	for i := range manage.MaxWarnings {
		if f := <-frames; f.GetRecord().GetNumber() != int64(i+9) {
			t.Fatalf("after the gap: %v", f)
		}
	}
	r.Drain(0)
	if err := <-err; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestWatchServerLogRefuses(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{})
	watch := func(q *bridgev1.WatchServerLogRequest) error {
		return r.Runtimes.WatchServerLog(context.Background(), q, func() error { return nil },
			func(*bridgev1.WatchServerLogResponse) error { return nil })
	}
	if err := watch(&bridgev1.WatchServerLogRequest{}); fault.ReasonOf(err) != fault.FeatureDisabled {
		t.Errorf("without a record of the log: %v", err)
	}
	err := watch(&bridgev1.WatchServerLogRequest{HeartbeatInterval: durationpb.New(1)})
	if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != "heartbeat_interval" {
		t.Errorf("a bad interval: %v", err)
	}
}
