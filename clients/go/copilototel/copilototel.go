// Package copilototel traces a client of package copilot with OpenTelemetry:
//
//	client, err := copilot.Connect(ctx, copilototel.WithOpenTelemetry())
package copilototel

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

// WithOpenTelemetry makes spans and metrics of the client's calls with otelgrpc, which opts
// configure; default: the global providers. Prompts carry the current span, and handlers run
// in the trace of their callback, both as W3C trace contexts.
func WithOpenTelemetry(opts ...otelgrpc.Option) copilot.Option {
	return copilot.WithOptions(
		copilot.WithGRPC(grpc.WithStatsHandler(otelgrpc.NewClientHandler(opts...))),
		copilot.WithTracing(copilot.Tracing{Extract: extract, Inject: inject}),
	)
}

func extract(ctx context.Context, parent, state string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: parent, tracestate: state})
}

func inject(ctx context.Context) (parent, state string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent], carrier[tracestate]
}
