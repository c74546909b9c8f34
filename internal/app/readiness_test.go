package app

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A server whose CLI cannot be started says NOT_SERVING until it can.
func TestReadinessIsTrue(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{})
	t.Cleanup(cli.Close)
	var mended atomic.Bool
	runner := runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
		if !mended.Load() {
			return nil, errors.New("no such CLI")
		}
		return cli.Connect(), nil
	})
	c := DefaultConfig()
	c.DataDir, c.Listen = "", []string{"unix:" + filepath.Join(t.TempDir(), "s")}
	a, err := New(t.Context(), c, WithRunner(runner), WithProbe(),
		WithRestarts(runtime.Backoff{First: time.Millisecond}, runtime.Breaker{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	conn, err := grpc.NewClient(a.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []healthv1.HealthCheckResponse_ServingStatus{
		healthv1.HealthCheckResponse_NOT_SERVING, healthv1.HealthCheckResponse_SERVING,
		healthv1.HealthCheckResponse_NOT_SERVING,
	} {
		state, err := watch.Recv()
		if err != nil || state.GetStatus() != want {
			t.Fatalf("health says %v, %v, want %v", state, err, want)
		}
		if want == healthv1.HealthCheckResponse_SERVING {
			stop()
		}
		for deadline := time.Now().Add(testTimeout); !mended.Load(); {
			if err := a.observing.ready(); err != nil && err.Error() != errNotProbed.Error() &&
				!errors.Is(err, errStarting) {
				mended.Store(true) // it has been told that the CLI cannot be started
			} else if time.Now().After(deadline) {
				t.Fatalf("ready says %v", err)
			}
			time.Sleep(time.Millisecond) // a pause between looks
		}
	}
	if err := errors.Join(conn.Close(), <-ended); err != nil {
		t.Error(err)
	}
}
