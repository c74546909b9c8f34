package server_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// drainer is a Drainer made of a function.
type drainer func(context.Context) error

func (d drainer) Drain(ctx context.Context) error { return d(ctx) }

// long is a timeout that a test must not come to feel.
const long = time.Minute

var goAway = &bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_GoAway{GoAway: new(bridgev1.GoAway)}}

// subscribe opens a stream and waits until it is served.
func subscribe(t *testing.T, r *servertest.Running) bridgev1.EventService_SubscribeClient {
	t.Helper()
	stream, err := bridgev1.NewEventServiceClient(r.Conn).Subscribe(t.Context(), new(bridgev1.SubscribeRequest))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// First the health status changes, then the backend sends GoAway and ends its streams, and then the server
// stops to accept calls. A client that watches the health status does not delay the end.
func TestDrainOrder(t *testing.T) {
	t.Parallel()
	draining, drained := make(chan struct{}), make(chan struct{})
	e := &events{subscribe: func(_ context.Context, emit frame.Sink) error {
		if err := emit(frame.Frame{Message: new(bridgev1.SubscribeResponse)}); err != nil {
			return err
		}
		<-draining
		defer close(drained)
		return emit(frame.Frame{Message: goAway})
	}}
	var r *servertest.Running
	var atDrain healthv1.HealthCheckResponse_ServingStatus
	var during error
	r = servertest.Start(t,
		server.Config{DrainTimeout: long, StopTimeout: long, Drainer: drainer(func(ctx context.Context) error {
			resp, err := healthv1.NewHealthClient(r.Conn).Check(ctx,
				&healthv1.HealthCheckRequest{Service: "copilot.bridge.v1.EventService"})
			atDrain = resp.GetStatus()
			_, infoErr := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(ctx,
				new(bridgev1.GetServerInfoRequest))
			during = errors.Join(err, infoErr)
			close(draining)
			<-drained
			return nil
		})}, e, info{})
	stream := subscribe(t, r)
	watch, err := healthv1.NewHealthClient(r.Conn).Watch(t.Context(), new(healthv1.HealthCheckRequest))
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || first.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("before: %v, %v", first, err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	if second, err := watch.Recv(); err != nil || second.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("draining: %v, %v", second, err)
	}
	if m, err := stream.Recv(); err != nil || m.GetGoAway() == nil {
		t.Errorf("the stream's last frame: %v, %v", m, err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run = %v", err)
	}
	if atDrain != healthv1.HealthCheckResponse_NOT_SERVING || during != nil {
		t.Errorf("while draining: health %v, calls %v", atDrain, during)
	}
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	e := &events{subscribe: func(ctx context.Context, emit frame.Sink) error {
		if err := emit(frame.Frame{Message: new(bridgev1.SubscribeResponse)}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	r := servertest.Start(t, server.Config{DrainTimeout: time.Millisecond, StopTimeout: 50 * time.Millisecond,
		Drainer: drainer(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})}, e)
	stream := subscribe(t, r)
	if err := r.Stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v, want what Drain returned", err)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
}

// A handler that is cancelled has its own time to return: it may be waiting for a storage that is slow.
func TestStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	e := &events{subscribe: func(ctx context.Context, emit frame.Sink) error {
		if err := emit(frame.Frame{Message: new(bridgev1.SubscribeResponse)}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	r := servertest.Start(t, server.Config{StopTimeout: time.Nanosecond, ReturnTimeout: time.Minute}, e)
	subscribe(t, r)
	if err := r.Stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// The server reports a handler that never returns, and does not wait for it.
func TestStopReportsStuckHandlers(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	release := sync.OnceFunc(func() { close(free) })
	defer release()
	e := &events{subscribe: func(_ context.Context, emit frame.Sink) error {
		err := emit(frame.Frame{Message: new(bridgev1.SubscribeResponse)})
		<-free
		return err
	}}
	r := servertest.Start(t, server.Config{StopTimeout: 50 * time.Millisecond}, e)
	subscribe(t, r)
	if err := r.Stop(); err == nil || !strings.Contains(err.Error(), "handlers still run") {
		t.Errorf("Run = %v", err)
	}
}
