package server

import (
	"cmp"
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// Telemetry configures the measurement of calls. Without providers calls are not measured; trace contexts of callers
// are propagated nevertheless.
type Telemetry struct {
	// Tracers and Meters receive a span and the metrics of each call. They may be nil.
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Observer counts streams and refusals.
	Observer *observe.Observer
}

// measured returns what measures calls. It excludes unknown methods, because clients can invent any number of names, and
// the calls of load balancers and tools.
func (s *Server) measured() stats.Handler {
	t := s.config.Telemetry
	return otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(cmp.Or[trace.TracerProvider](t.Tracers, tracenoop.NewTracerProvider())),
		otelgrpc.WithMeterProvider(cmp.Or[metric.MeterProvider](t.Meters, metricnoop.NewMeterProvider())),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
		otelgrpc.WithFilter(func(info *stats.RPCTagInfo) bool {
			return s.gate.served[info.FullMethodName] && !strings.HasPrefix(info.FullMethodName, infrastructure)
		}),
	)
}

// spanned returns what makes a span of each call; nil without tracers. It is told of every message, for which gRPC
// allocates; the metrics alone need only the end of a call, of which observed tells them.
func (s *Server) spanned() stats.Handler {
	if s.config.Telemetry.Tracers == nil {
		return nil
	}
	return s.measured()
}

// observe uses a caller's trace context if no handler did, and counts streams.
func (s *Server) observe(ctx context.Context, c *call) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if s.limiter.streaming[c.method] && !strings.HasPrefix(c.method, infrastructure) {
		s.config.Telemetry.Observer.Stream(c.method, 1)
		c.counted = true
	}
	return observe.Extract(ctx, md.Get), nil
}

// observed ends what observe began, measures the call, and counts refusals.
func (s *Server) observed(ctx context.Context, c *call, err error) error {
	o := s.config.Telemetry.Observer
	observe.OfSession(ctx, c.sessionID())
	if s.ends != nil {
		ctx = s.ends.TagRPC(ctx, &stats.RPCTagInfo{FullMethodName: c.method})
		s.ends.HandleRPC(ctx, &stats.End{BeginTime: c.began, EndTime: time.Now(), Error: err})
	}
	o.Refused(c.failure)
	if c.counted {
		o.Stream(c.method, -1)
	}
	return err
}

// audit records the calls that matter for an audit: refused calls, and calls that use the host, concern the
// server or change permissions.
func (s *Server) audit(ctx context.Context, c *call, err error) error {
	c.failure = err
	if s.config.Audit != nil {
		s.audited(ctx, c, err)
	}
	return err
}

func (s *Server) audited(ctx context.Context, c *call, err error) {
	st, _ := status.Of(err)
	e := audit.Entry{Outcome: audit.Done, Method: strings.TrimPrefix(c.method, "/"), Session: c.sessionID(),
		Owner: c.caller.Tenant}
	refused := st.Code() == codes.Unauthenticated || st.Code() == codes.PermissionDenied
	switch {
	case refused:
		e.Action = "call.refused"
	case strings.HasPrefix(c.method, infrastructure):
		return
	case c.caller.Class == caller.Host || c.caller.Class == caller.Operate:
		e.Action = "call.host"
	case policy.Permits(c.method):
		e.Action = "call.permissions"
	default:
		return
	}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, status.Reason(st)
	}
	if refused {
		e.Outcome = audit.Refused
	}
	who := c.caller
	if who.Role == caller.Nobody {
		who.Peer = peerOf(ctx)
		if !s.gate.served[c.method] {
			e.Method = ""
		}
	}
	s.config.Audit.Record(caller.With(ctx, who), e)
}

// peerOf returns the origin of a call.
func peerOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	switch {
	case !ok:
		return ""
	case p.Addr.Network() == "unix":
		return "unix"
	}
	return p.Addr.String()
}
