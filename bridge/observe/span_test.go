package observe

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

const (
	traceA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceB = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// incoming is the context of a call that brings headers.
func incoming(headers map[string][]string) context.Context {
	return Extract(context.Background(), func(key string) []string { return headers[key] })
}

func idOf(traceparent string) string { return traceparent[3:35] }

// Without a tracer, the context of a caller is passed on unchanged.
func TestContextsPassThroughSilence(t *testing.T) {
	t.Parallel()
	o := Silent()
	for name, tc := range map[string]struct {
		call    map[string][]string
		message Remote
		want    Remote
	}{
		"of the call":    {map[string][]string{"traceparent": {traceA}, "tracestate": {"v=1"}}, Remote{}, Remote{traceA, "v=1"}},
		"of the message": {map[string][]string{"traceparent": {traceA}}, Remote{traceB, "w=2"}, Remote{traceB, "w=2"}},
		"none":           {nil, Remote{}, Remote{}},
		"malformed":      {map[string][]string{"traceparent": {"00-nothing"}}, Remote{}, Remote{}},
		"two":            {map[string][]string{"traceparent": {traceA, traceB}}, Remote{}, Remote{}},
	} {
		turn := o.Turn(incoming(tc.call), "s", "", tc.message)
		if got := turn.Remote(); got != tc.want || turn.Own() {
			t.Errorf("%s: %v, its own: %v", name, got, turn.Own())
		}
		if got := o.Callback(turn, Remote{}, "s", "", "c", "CALLBACK_KIND_HOOK").Remote(); got != tc.want {
			t.Errorf("%s: the callback has %v", name, got)
		}
	}
}

// Without a tracer, a span that another program records for the call is not the turn's to end.
func TestSilenceEndsNoSpan(t *testing.T) {
	t.Parallel()
	ctx, call := sdktrace.NewTracerProvider().Tracer("").Start(context.Background(), "call")
	turn := Silent().Turn(ctx, "s", "", Remote{})
	if turn.EndTurn("TURN_STATUS_FAILED"); !call.IsRecording() {
		t.Error("the span of the call has ended")
	}
	if got := turn.Remote().Traceparent; got == "" || idOf(got) != call.SpanContext().TraceID().String() {
		t.Errorf("the turn has the context %q", got)
	}
}

// tracing returns an Observer and where its spans go.
func tracing(t *testing.T) (*Observer, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	o, err := New(Config{Tracers: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))})
	if err != nil {
		t.Fatal(err)
	}
	return o, spans
}

func TestParentsAndLinks(t *testing.T) {
	t.Parallel()
	call := map[string][]string{"traceparent": {traceA}}
	for name, tc := range map[string]struct {
		ctx     context.Context
		message Remote
		// trace is the turn's trace, "" for a new one; linked is the linked trace.
		trace, linked string
	}{
		"a call":                        {incoming(call), Remote{}, traceA, ""},
		"a call, and a message's own":   {incoming(call), Remote{Traceparent: traceB}, traceB, traceA},
		"the same in both":              {incoming(call), Remote{Traceparent: traceA}, traceA, ""},
		"a stream":                      {Apart(incoming(call)), Remote{}, "", traceA},
		"a stream, and a message's own": {Apart(incoming(call)), Remote{Traceparent: traceB}, traceB, traceA},
		"nothing":                       {Apart(context.Background()), Remote{}, "", ""},
	} {
		o, spans := tracing(t)
		o.Turn(tc.ctx, "s", "acme", tc.message).EndTurn("TURN_STATUS_FAILED")
		got := spans.GetSpans()[0]
		id := got.SpanContext.TraceID().String()
		if tc.trace != "" && id != idOf(tc.trace) || tc.trace == "" && (got.Parent.IsValid() || id == idOf(traceA)) {
			t.Errorf("%s: the turn is in trace %s under %v", name, id, got.Parent.SpanID())
		}
		linked := ""
		for _, l := range got.Links {
			linked = l.SpanContext.TraceID().String()
		}
		if tc.linked == "" && linked != "" || tc.linked != "" && linked != idOf(tc.linked) {
			t.Errorf("%s: it links %q", name, linked)
		}
	}
}

// A callback belongs to the span that the CLI names, before the turn's.
func TestCallbackPrefersTheCLIsSpan(t *testing.T) {
	t.Parallel()
	o, spans := tracing(t)
	turn := o.Turn(context.Background(), "s", "", Remote{})
	o.Callback(turn, Remote{Traceparent: traceB}, "s", "", "1", "CALLBACK_KIND_TOOL_CALL").EndCallback("CALLBACK_OUTCOME_ANSWERED", time.Now())
	o.Callback(turn, Remote{}, "s", "", "2", "CALLBACK_KIND_TOOL_CALL").EndCallback("CALLBACK_OUTCOME_TIMED_OUT", time.Now())
	o.Callback(nil, Remote{}, "s", "", "3", "CALLBACK_KIND_TOOL_CALL").EndCallback("overflow", time.Now())
	want := []trace.TraceID{{}, trace.SpanContextFromContext(context.Background()).TraceID(), {}}
	want[0], _ = trace.TraceIDFromHex(idOf(traceB))
	want[1] = turn.span.SpanContext().TraceID()
	outcomes := []string{"answered", "timed_out", "overflow"}
	for i, s := range spans.GetSpans() {
		if want[i].IsValid() && s.SpanContext.TraceID() != want[i] {
			t.Errorf("callback %d is in trace %s", i+1, s.SpanContext.TraceID())
		}
		outcome := ""
		for _, a := range s.Attributes {
			if a.Key == AttrOutcome {
				outcome = a.Value.AsString()
			}
		}
		if outcome != outcomes[i] {
			t.Errorf("callback %d ended %q", i+1, outcome)
		}
	}
}

func TestNoSpanIsFine(t *testing.T) {
	t.Parallel()
	var s *Span
	s.EndTurn("TURN_STATUS_COMPLETED")
	s.EndCallback("CALLBACK_OUTCOME_ANSWERED", time.Now())
	s.Message("m")
	s.Refuse()
	if s.Own() || s.Remote() != (Remote{}) {
		t.Error("there is something")
	}
}

func TestRefusedTurn(t *testing.T) {
	t.Parallel()
	o, spans := tracing(t)
	o.Turn(context.Background(), "s", "", Remote{}).Refuse()
	got := spans.GetSpans()[0]
	if attributes(&got)[attrError] != "refused" || got.Status.Code != codes.Error {
		t.Errorf("the span has %v and %v", got.Attributes, got.Status)
	}
}
