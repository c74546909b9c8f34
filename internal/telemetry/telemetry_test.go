package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ endpoint, protocol, problem string }{
		{"", "", ""},
		{"http://127.0.0.1:4318", "http/protobuf", ""},
		{"https://collector.example", "grpc", ""},
		{"127.0.0.1:4317", "", "not an http"},
		{"", "http/json", "none of"},
	} {
		err := errors.Join(CheckEndpoint(tc.endpoint), CheckProtocol(tc.protocol))
		if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("Check(%q, %q) = %v", tc.endpoint, tc.protocol, err)
		}
	}
}

// sink is a collector that keeps what it gets as text.
type sink struct {
	collectortrace.UnimplementedTraceServiceServer
	mu   sync.Mutex
	text map[string]string
}

func (s *sink) keep(what string, m proto.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == nil {
		s.text = map[string]string{}
	}
	s.text[what] += m.(interface{ String() string }).String()
}

// Export implements the trace service.
func (s *sink) Export(
	_ context.Context, r *collectortrace.ExportTraceServiceRequest,
) (*collectortrace.ExportTraceServiceResponse, error) {
	s.keep("spans", r)
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

// figures is the metrics service of a sink.
type figures struct {
	collectormetrics.UnimplementedMetricsServiceServer
	*sink
}

// Export implements the metrics service.
func (f figures) Export(
	_ context.Context, r *collectormetrics.ExportMetricsServiceRequest,
) (*collectormetrics.ExportMetricsServiceResponse, error) {
	f.keep("figures", r)
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

func overGRPC(t *testing.T, s *sink) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	collectortrace.RegisterTraceServiceServer(g, s)
	collectormetrics.RegisterMetricsServiceServer(g, figures{sink: s})
	var served sync.WaitGroup
	served.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); served.Wait() })
	return "http://" + l.Addr().String()
}

func overHTTP(t *testing.T, s *sink) string {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		what, m := "spans", proto.Message(new(collectortrace.ExportTraceServiceRequest))
		if q.URL.Path == "/v1/metrics" {
			what, m = "figures", new(collectormetrics.ExportMetricsServiceRequest)
		}
		if err = errors.Join(err, proto.Unmarshal(body, m)); err != nil {
			t.Error(err)
		}
		s.keep(what, m)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// Spans and figures get to a collector in both forms of the protocol, without what looks
// like a secret.
func TestOTLP(t *testing.T) {
	t.Parallel()
	for protocol, serve := range map[string]func(*testing.T, *sink) string{ProtocolGRPC: overGRPC,
		ProtocolHTTP: overHTTP} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := &sink{}
			tel, err := New(t.Context(), Config{
				OTLP: true, Endpoint: serve(t, s), Protocol: protocol, Version: "v7",
				Redact: func(text string) string { return strings.ReplaceAll(text, "hunter2", "[redacted]") },
			})
			if err != nil {
				t.Fatal(err)
			}
			_, span := tel.Tracers.Tracer("test").Start(t.Context(), "worked")
			span.SetStatus(codes.Error, "no entry with hunter2")
			span.End()
			counter, err := tel.Meters.Meter("test").Int64Counter("things")
			if err != nil {
				t.Fatal(err)
			}
			counter.Add(t.Context(), 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := tel.Shutdown(ctx); err != nil {
				t.Fatal(err)
			}
			spans, figures := s.text["spans"], s.text["figures"]
			for _, want := range []string{"worked", "no entry with [redacted]", "service.name", ServiceName, "v7"} {
				if !strings.Contains(spans, want) {
					t.Errorf("the spans have no %q: %s", want, spans)
				}
			}
			if strings.Contains(spans, "hunter2") || !strings.Contains(figures, "things") {
				t.Errorf("spans %s, figures %s", spans, figures)
			}
		})
	}
}

// Without an OTLP endpoint there are no spans; the metrics page needs none.
func TestPageAlone(t *testing.T) {
	t.Parallel()
	tel, err := New(t.Context(), Config{Prometheus: true})
	if err != nil {
		t.Fatal(err)
	}
	if tel.Tracers != nil {
		t.Error("spans are made for nobody")
	}
	w := httptest.NewRecorder()
	tel.Page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := w.Body.String(); !strings.Contains(text, "go_goroutines") || !strings.Contains(text, "process_cpu") {
		t.Errorf("the page is %s", text)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// No package that has a Telemetry compiles the SDK's generic functions: pointers would lead to them.
func TestTelemetryHidesTheSDK(t *testing.T) {
	t.Parallel()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Telemetry]()) {
		if kind := field.Type.Kind(); kind == reflect.Pointer || kind == reflect.Struct {
			t.Errorf("field %s is a %s", field.Name, field.Type)
		}
	}
}

// TestFailedStart: of two exporters of which one cannot be made, the other leaves nothing behind, as TestMain checks.
func TestFailedStart(t *testing.T) {
	for _, of := range []string{"TRACES", "METRICS"} {
		t.Run(of, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_"+of+"_ENDPOINT", "http://[fe80::1%25%25zz]:4317") // gRPC cannot parse it
			if _, err := New(t.Context(), Config{OTLP: true, Protocol: ProtocolGRPC, Prometheus: true}); err == nil {
				t.Error("it starts")
			}
		})
	}
}
