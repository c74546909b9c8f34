// Package telemetry exports the metrics and spans of package observe and of the gRPC server: to a page for
// Prometheus, and by OTLP. It is the only user of OpenTelemetry's SDK, which owns all goroutines; Shutdown ends them.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Protocols are the forms of OTLP, as OTEL_EXPORTER_OTLP_PROTOCOL names them.
const (
	ProtocolGRPC = "grpc"
	ProtocolHTTP = "http/protobuf"
)

// ServiceName is the service's name where the environment names none.
const ServiceName = "copilot-grpc"

// Config says what is wanted.
type Config struct {
	// OTLP sends spans and figures by OTLP. Endpoint is the URL to send them to; default:
	// the environment's (OTEL_EXPORTER_OTLP_ENDPOINT and its like), which also gives
	// headers, certificates, timeouts, the sampler and the resource. Protocol is
	// ProtocolGRPC or ProtocolHTTP; default: ProtocolHTTP.
	OTLP               bool
	Endpoint, Protocol string
	// Prometheus makes the page.
	Prometheus bool
	// Version is that of the program.
	Version string
	// Redact takes out of texts what looks like a secret.
	Redact func(string) string
	// Spans, if set, gets the spans too.
	Spans sdktrace.SpanExporter
}

// CheckEndpoint tells what is wrong with an endpoint.
func CheckEndpoint(endpoint string) error {
	if endpoint != "" && !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		return fmt.Errorf("OTLP endpoint %q is not an http:// or https:// URL", endpoint)
	}
	return nil
}

// CheckProtocol tells what is wrong with a protocol.
func CheckProtocol(protocol string) error {
	if !slices.Contains([]string{"", ProtocolGRPC, ProtocolHTTP}, protocol) {
		return fmt.Errorf("OTLP protocol %q is none of %q, %q", protocol, ProtocolGRPC, ProtocolHTTP)
	}
	return nil
}

// Telemetry is what is wanted, at work. Its fields have types of OpenTelemetry's API only: a package whose types lead to
// one of the SDK compiles 1,450 of the SDK's generic functions again, which takes 3 s.
type Telemetry struct {
	// Tracers is nil if spans are not exported.
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Page is the page for Prometheus; nil if there is none.
	Page     http.Handler
	shutdown []func(context.Context) error
}

// New starts the export. The caller must Shutdown it. Data is sent in the background; a missing receiver is not an
// error here.
func New(ctx context.Context, c Config) (*Telemetry, error) {
	described, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", ServiceName),
			attribute.String("service.version", c.Version)),
		resource.WithFromEnv()) // the last wins
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if c.Redact == nil {
		c.Redact = func(s string) string { return s }
	}
	t := &Telemetry{}
	spans := []sdktrace.TracerProviderOption{sdktrace.WithResource(described)}
	figures := []sdkmetric.Option{sdkmetric.WithResource(described)}
	if c.Prometheus {
		registry := prometheus.NewRegistry()
		registry.MustRegister(collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
			otelprometheus.WithoutTargetInfo())
		if err != nil {
			return nil, fmt.Errorf("telemetry: Prometheus: %w", err)
		}
		figures = append(figures, sdkmetric.WithReader(reader))
		// Exemplars, which the SDK takes from sampled spans, need OpenMetrics. Prometheus asks for that.
		t.Page = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	}
	if c.OTLP { // the last that may fail: from here on goroutines run
		exporter, reader, err := c.otlp(ctx)
		if err != nil {
			return nil, fmt.Errorf("telemetry: OTLP: %w", err)
		}
		spans = append(spans, sdktrace.WithBatcher(discreet{exporter, c.Redact}))
		figures = append(figures, sdkmetric.WithReader(reader))
	}
	if c.Spans != nil {
		spans = append(spans, sdktrace.WithSyncer(discreet{c.Spans, c.Redact}))
	}
	if c.OTLP || c.Spans != nil {
		tracers := sdktrace.NewTracerProvider(spans...)
		t.Tracers, t.shutdown = tracers, append(t.shutdown, tracers.Shutdown)
	}
	meters := sdkmetric.NewMeterProvider(figures...)
	t.Meters, t.shutdown = meters, append(t.shutdown, meters.Shutdown)
	return t, nil
}

func (c Config) otlp(ctx context.Context) (sdktrace.SpanExporter, sdkmetric.Reader, error) {
	var spans sdktrace.SpanExporter
	var figures sdkmetric.Exporter
	var failed [2]error
	if c.Protocol == ProtocolGRPC {
		var to []otlptracegrpc.Option
		var too []otlpmetricgrpc.Option
		if c.Endpoint != "" {
			to = append(to, otlptracegrpc.WithEndpointURL(c.Endpoint))
			too = append(too, otlpmetricgrpc.WithEndpointURL(c.Endpoint))
		}
		spans, failed[0] = otlptracegrpc.New(ctx, to...)
		figures, failed[1] = otlpmetricgrpc.New(ctx, too...)
	} else {
		var to []otlptracehttp.Option
		var too []otlpmetrichttp.Option
		if c.Endpoint != "" {
			base := strings.TrimRight(c.Endpoint, "/")
			to = append(to, otlptracehttp.WithEndpointURL(base+"/v1/traces"))
			too = append(too, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"))
		}
		spans, failed[0] = otlptracehttp.New(ctx, to...)
		figures, failed[1] = otlpmetrichttp.New(ctx, too...)
	}
	if err := errors.Join(failed[:]...); err != nil {
		if failed[0] == nil {
			err = errors.Join(err, spans.Shutdown(ctx))
		}
		if failed[1] == nil {
			err = errors.Join(err, figures.Shutdown(ctx))
		}
		return nil, nil, err
	}
	return spans, sdkmetric.NewPeriodicReader(figures), nil
}

// Shutdown sends what is left, for as long as ctx lasts, and ends everything.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var errs []error
	for _, shutdown := range t.shutdown {
		errs = append(errs, shutdown(ctx))
	}
	return errors.Join(errs...)
}

// discreet keeps what looks like a secret in the text of an error from being sent.
type discreet struct {
	sdktrace.SpanExporter
	redact func(string) string
}

func (d discreet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	clean := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, span := range spans {
		clean[i] = discreetSpan{span, d.redact}
	}
	return d.SpanExporter.ExportSpans(ctx, clean)
}

type discreetSpan struct {
	sdktrace.ReadOnlySpan
	redact func(string) string
}

func (s discreetSpan) Status() sdktrace.Status {
	st := s.ReadOnlySpan.Status()
	st.Description = s.redact(st.Description)
	return st
}
