package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// What the names of the enums begin with whose values are attributes.
const (
	turnStatus      = "TURN_STATUS_"
	callbackKind    = "CALLBACK_KIND_"
	callbackOutcome = "CALLBACK_OUTCOME_"
)

// w3c reads and writes trace contexts.
var w3c propagation.TraceContext

// Remote is a trace context in the form of the W3C recommendation, as others sent it.
type Remote struct{ Traceparent, Tracestate string }

// context returns the context that the headers name, invalid if they name none.
func (r Remote) context() trace.SpanContext {
	if r.Traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": r.Traceparent, "tracestate": r.Tracestate}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), carrier))
}

// Extract returns ctx with the trace context that get finds in a call's metadata, unless
// ctx has one.
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

// linkKey is the key of a context that is a span's link and not its parent.
type linkKey struct{}

// Apart returns ctx for what a long stream brings: it belongs to traces of its own, which
// name the stream's.
func Apart(ctx context.Context) context.Context {
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return ctx
	}
	return context.WithValue(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), linkKey{}, sc)
}

// OfSession says on the span of a call which session it is about.
func OfSession(ctx context.Context, id string) {
	if span := trace.SpanFromContext(ctx); id != "" && span.IsRecording() {
		span.SetAttributes(attribute.String(AttrSession, id))
	}
}

// Span is a turn or a callback that goes on. A nil Span is none.
type Span struct {
	span trace.Span
	own  bool
}

// Turn begins the span of a message, from the call that brings it to its turn's end. If the
// message names a trace context, that is its parent, and the call's is linked.
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
	return o.begin(ctx, "copilot.turn", links, attribute.String(AttrSession, session), attribute.String(AttrTenant, tenant))
}

// Callback begins the span of a callback. Its parent is the trace context that the CLI
// names, or else the turn.
func (o *Observer) Callback(turn *Span, cli Remote, session, tenant, id, kind string) *Span {
	ctx := context.Background()
	if named := cli.context(); named.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, named)
	} else if turn != nil {
		ctx = trace.ContextWithSpanContext(ctx, turn.span.SpanContext())
	}
	return o.begin(ctx, "copilot.callback", nil,
		attribute.String(AttrSession, session), attribute.String(AttrTenant, tenant),
		attribute.String(AttrCallback, id), attribute.String(AttrKind, Kind(kind)))
}

func (o *Observer) begin(ctx context.Context, name string, links []trace.Link, attrs ...attribute.KeyValue) *Span {
	parent := trace.SpanContextFromContext(ctx)
	_, span := o.tracer.Start(ctx, name, trace.WithLinks(links...), trace.WithAttributes(attrs...))
	return &Span{span: span, own: !span.SpanContext().Equal(parent)}
}

// Remote is the span's context for others: its own, or with no tracing the one that it
// would have begun under. It is empty when there is neither.
func (s *Span) Remote() Remote {
	if s == nil {
		return Remote{}
	}
	return remote(s.span.SpanContext())
}

// Of is the trace context of the call that ctx belongs to, or of the stream's that it came
// on; empty when it has none.
func Of(ctx context.Context) Remote {
	if linked, ok := ctx.Value(linkKey{}).(trace.SpanContext); ok {
		return remote(linked)
	}
	return remote(trace.SpanContextFromContext(ctx))
}

// remote writes a trace context for others.
func remote(sc trace.SpanContext) Remote {
	if !sc.IsValid() {
		return Remote{}
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	return Remote{Traceparent: carrier["traceparent"], Tracestate: carrier["tracestate"]}
}

// Own reports whether the span is more than the context that it was to begin under.
func (s *Span) Own() bool { return s != nil && s.own }

// Message says which message the turn is of.
func (s *Span) Message(id string) {
	if s != nil && id != "" {
		s.span.SetAttributes(attribute.String(AttrMessage, id))
	}
}

// EndTurn ends a turn's span. status is a TurnStatus's name.
func (s *Span) EndTurn(status string) {
	if s == nil {
		return
	}
	status = word(status, turnStatus)
	s.span.SetAttributes(attribute.String(AttrStatus, status))
	if status != "completed" && status != "aborted" {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// EndCallback ends a callback's span. outcome is a CallbackOutcome's name.
func (s *Span) EndCallback(outcome string) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.String(AttrOutcome, word(outcome, callbackOutcome)))
	s.span.End()
}

// Refuse ends the span of a turn that never was.
func (s *Span) Refuse() {
	if s == nil {
		return
	}
	s.span.SetStatus(codes.Error, "")
	s.span.End()
}
