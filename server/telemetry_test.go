package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// Unknown methods have no metrics: callers choose their names, which would be unbounded. Health checks have
// none, either.
func TestOnlyOwnMethodsAreMeasured(t *testing.T) {
	t.Parallel()
	for _, traced := range []bool{false, true} {
		spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
		telemetry := &server.Telemetry{Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		if traced {
			telemetry.Tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		}
		callAll(t, telemetry)
		var names []string
		for _, s := range spans.GetSpans() {
			names = append(names, s.Name)
		}
		if span := webInfo[1:]; traced != slices.Equal(names, []string{span, span}) {
			t.Errorf("traced %v: the spans are %q", traced, names)
		}
		var got metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		var series []string
		for _, scope := range got.ScopeMetrics {
			for _, m := range scope.Metrics {
				if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
					for _, p := range h.DataPoints {
						series = append(series, fmt.Sprint(p.Count, " of ", m.Name, " ",
							p.Attributes.Encoded(attribute.DefaultEncoder())))
					}
				}
			}
		}
		want := "2 of rpc.server.call.duration rpc.method=copilot.bridge.v1.RuntimeService/GetServerInfo," +
			"rpc.response.status_code=OK,rpc.system.name=grpc"
		if !slices.Equal(series, []string{want}) {
			t.Errorf("traced %v: the series of calls are %q", traced, series)
		}
	}
}

// callAll calls a method of the server, by gRPC and by HTTP, methods that it does not have, and its health.
func callAll(t *testing.T, telemetry *server.Telemetry) {
	t.Helper()
	r := servertest.Start(t, server.Config{Telemetry: telemetry, Web: &server.Web{Listen: "127.0.0.1:0"},
		Token: webToken}, info{})
	_ = textOf(t, fetch(t, r, browser(t, nil), webInfo, webToken))
	for _, method := range []string{webInfo, "/copilot.bridge.v1.RuntimeService/Made-up", "/made.up.Service/1"} {
		_ = r.Conn.Invoke(t.Context(), method, new(bridgev1.GetServerInfoRequest), new(bridgev1.GetServerInfoResponse))
	}
	if _, err := healthv1.NewHealthClient(r.Conn).Check(t.Context(), new(healthv1.HealthCheckRequest)); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil { // after which all spans are there
		t.Fatal(err)
	}
}

// A caller's trace context is in the context of its call, also without a tracer.
func TestTraceContextComesIn(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	var got string
	s := answering(nil, nil)
	get := s.get
	s.get = func(ctx context.Context, req *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		got = trace.SpanContextFromContext(ctx).TraceID().String()
		return get(ctx, req)
	}
	r := servertest.Start(t, server.Config{}, s)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+id+"-00f067aa0ba902b7-01")
	_, _ = bridgev1.NewSessionServiceClient(r.Conn).GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s1"})
	if got != id {
		t.Errorf("the call is in trace %q", got)
	}
}

// Health tells of each service: that it serves, and that it does not as soon as the server
// drains.
func TestHealthOfEachService(t *testing.T) {
	t.Parallel()
	var r *servertest.Running
	states := func(ctx context.Context) (told []string) {
		for _, service := range []string{"", "copilot.bridge.v1.EventService", "copilot.bridge.v1.RuntimeService",
			"copilot.bridge.v1.Nothing"} {
			resp, err := healthv1.NewHealthClient(r.Conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
			if err != nil {
				told = append(told, "error")
				continue
			}
			told = append(told, resp.GetStatus().String())
		}
		return told
	}
	var atDrain []string
	r = servertest.Start(t,
		server.Config{DrainTimeout: long, StopTimeout: long, Drainer: drainer(func(ctx context.Context) error {
			atDrain = states(ctx)
			return nil
		})}, &events{}, info{})
	if _, err := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(t.Context(),
		new(bridgev1.GetServerInfoRequest)); err != nil {
		t.Fatal(err)
	}
	serving := states(t.Context())
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(serving, " "), "SERVING SERVING SERVING error"; got != want {
		t.Errorf("while it serves: %s", got)
	}
	if got, want := strings.Join(atDrain, " "), "NOT_SERVING NOT_SERVING NOT_SERVING error"; got != want {
		t.Errorf("while it drains: %s", got)
	}
}

// Text that looks like a secret in a panic is in no log.
func TestPanicsTellNoSecret(t *testing.T) {
	t.Parallel()
	r, log := logged(t, server.Config{},
		&sessions{get: func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
			panic("cannot use token=hunter2hunter2")
		}})
	getSession(t, r)
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "cannot use") || strings.Contains(got, "hunter2") {
		t.Errorf("log %s", got)
	}
}
