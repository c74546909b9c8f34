package observe

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Prefixes of the names of enum values that are used in attributes.
const (
	turnStatus      = "TURN_STATUS_"
	callbackKind    = "CALLBACK_KIND_"
	callbackOutcome = "CALLBACK_OUTCOME_"
)

// w3c parses and formats trace contexts.
var w3c propagation.TraceContext

// Remote is a trace context in the format of the W3C recommendation.
type Remote struct{ Traceparent, Tracestate string }

// context returns the context of the headers; invalid if there is none.
func (r Remote) context() trace.SpanContext {
	if r.Traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": r.Traceparent, "tracestate": r.Tracestate}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), carrier))
}

// Extract returns ctx with the trace context in a call's metadata, which get reads. A ctx that has a trace context
// stays unchanged.
func Extract(ctx context.Context, get func(key string) []string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	parents := get("traceparent")
	if len(parents) != 1 {
		return ctx
	}
	r := Remote{Traceparent: parents[0]}
	if states := get("tracestate"); len(states) == 1 {
		r.Tracestate = states[0]
	}
	return trace.ContextWithRemoteSpanContext(ctx, r.context())
}

// linkKey is the context key of a trace context that becomes a span's link and not its parent.
type linkKey struct{}

// Apart returns ctx for work that a long stream starts: its spans get new traces with a link to the trace of
// the stream.
func Apart(ctx context.Context) context.Context {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return ctx
	}
	return context.WithValue(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), linkKey{}, sc)
}

// OfSession sets the session's id on the span of a call.
func OfSession(ctx context.Context, id string) {
	if span := trace.SpanFromContext(ctx); id != "" && span.IsRecording() {
		span.SetAttributes(attribute.String(AttrSession, id))
	}
}

// Span is the span of a turn or a callback in progress. All methods accept a nil Span.
type Span struct {
	span trace.Span
	own  bool
}

// Turn starts the span of a message, from the call that sends it to the end of its turn. If the message has a trace
// context, that is the parent, and the call's span is linked.
func (o *Observer) Turn(ctx context.Context, session, tenant string, message Remote) *Span {
	var links []trace.Link
	call := trace.SpanContextFromContext(ctx)
	if linked, ok := ctx.Value(linkKey{}).(trace.SpanContext); ok {
		links = append(links, trace.Link{SpanContext: linked})
	}
	if named := message.context(); named.IsValid() && named.TraceID() != call.TraceID() {
		if call.IsValid() {
			links = append(links, trace.Link{SpanContext: call})
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, named)
	}
	return o.begin(ctx, opTurn, trace.SpanKindClient, links, func() []attribute.KeyValue {
		return append(stepAttributes(opTurn, session, tenant, ""), attrProvider.String(provider))
	})
}

// Callback starts the span of a callback. The parent is the CLI's trace context if there is one, else the span of the tool
// or turn that asks, which may be nil.
func (o *Observer) Callback(asking *Span, cli Remote, session, tenant, id, kind string) *Span {
	ctx := context.Background()
	if named := cli.context(); named.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, named)
	} else if asking != nil {
		ctx = trace.ContextWithSpanContext(ctx, asking.span.SpanContext())
	}
	return o.begin(ctx, "copilot.callback", trace.SpanKindInternal, nil, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String(AttrSession, session), attribute.String(AttrTenant, tenant),
			attribute.String(AttrCallback, id), attribute.String(AttrKind, Kind(kind)),
		}
	})
}

// begin starts a span. If no spans are recorded, it returns one that passes the parent on; nil without a parent.
func (o *Observer) begin(
	ctx context.Context, name string, kind trace.SpanKind, links []trace.Link, attrs func() []attribute.KeyValue,
) *Span {
	parent := trace.SpanContextFromContext(ctx)
	switch {
	case o.tracer == nil && !parent.IsValid():
		return nil
	case o.tracer == nil:
		return &Span{span: trace.SpanFromContext(trace.ContextWithSpanContext(ctx, parent))}
	}
	_, span := o.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithLinks(links...), trace.WithAttributes(attrs()...))
	return &Span{span: span, own: !span.SpanContext().Equal(parent)}
}

// Remote returns the trace context to propagate: the span's own, or without tracing its parent. It is empty if there
// is neither.
func (s *Span) Remote() Remote {
	if s == nil {
		return Remote{}
	}
	return remote(s.span.SpanContext())
}

// Of returns the trace context of ctx's call or of the stream that it came on; empty if there is none.
func Of(ctx context.Context) Remote {
	if linked, ok := ctx.Value(linkKey{}).(trace.SpanContext); ok {
		return remote(linked)
	}
	return remote(trace.SpanContextFromContext(ctx))
}

// remote formats a trace context.
func remote(sc trace.SpanContext) Remote {
	if !sc.IsValid() {
		return Remote{}
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return Remote{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}

// Own reports whether the span is recorded, and not only a propagated parent.
func (s *Span) Own() bool { return s != nil && s.own }

// Message sets the id of the turn's message.
func (s *Span) Message(id string) {
	if s != nil && id != "" && s.span.IsRecording() {
		s.span.SetAttributes(attribute.String(AttrMessage, id))
	}
}

// EndTurn ends a turn's span. status is a TurnStatus's name.
func (s *Span) EndTurn(status string) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	status = word(status, turnStatus)
	s.span.SetAttributes(attribute.String(AttrStatus, status))
	if status != "completed" && status != "aborted" {
		s.span.SetAttributes(attrError.String(status))
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// EndCallback ends a callback's span at a time. outcome is a CallbackOutcome's name.
func (s *Span) EndCallback(outcome string, at time.Time) {
	if s == nil || !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(attribute.String(AttrOutcome, word(outcome, callbackOutcome)))
	s.span.End(trace.WithTimestamp(at))
}

// Refuse ends the span of a turn that was refused.
func (s *Span) Refuse() {
	if s == nil {
		return
	}
	s.span.SetAttributes(attrError.String("refused"))
	s.span.SetStatus(codes.Error, "")
	s.span.End()
}
