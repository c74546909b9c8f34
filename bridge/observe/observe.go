// Package observe is what the bridge and the server tell of themselves by OpenTelemetry:
// spans of turns and callbacks, and figures. It uses the API alone; whether anything comes
// of it, and where it goes, is for whoever gives the providers (package telemetry).
//
// Nothing here is called for each event. What is counted that often is counted by its
// owner and read when somebody looks (Collect).
package observe

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Scope is the name of our spans' and figures' origin.
const Scope = "github.com/copilot-grpc/copilot-grpc"

// The attributes. None holds what anybody has said, nor arguments, results or secrets.
const (
	AttrSession  = "session.id"
	AttrTenant   = "copilot.tenant"
	AttrMessage  = "copilot.message.id"
	AttrStatus   = "copilot.turn.status"
	AttrCallback = "copilot.callback.id"
	AttrKind     = "copilot.callback.kind"
	AttrOutcome  = "copilot.callback.outcome"
)

// seconds are the boundaries of durations that people and models make.
var seconds = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}

// Observer has the instruments. Its methods may be called from any goroutine.
type Observer struct {
	tracer trace.Tracer
	meter  metric.Meter

	turns, callbacks, ends, refused   metric.Int64Counter
	turnTime, callbackTime, spawnTime metric.Float64Histogram
	streams                           metric.Int64UpDownCounter
}

// New returns an Observer that tells the providers; nil ones are told nothing.
func New(tracers trace.TracerProvider, meters metric.MeterProvider) (*Observer, error) {
	if tracers == nil {
		tracers = tracenoop.NewTracerProvider()
	}
	if meters == nil {
		meters = metricnoop.NewMeterProvider()
	}
	o := &Observer{tracer: tracers.Tracer(Scope), meter: meters.Meter(Scope)}
	var errs []error
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := o.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	duration := func(name, text string) metric.Float64Histogram {
		h, err := o.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(seconds...))
		errs = append(errs, err)
		return h
	}
	o.turns = counter("copilot.turns", "{turn}", "Turns that have ended, by how.")
	o.turnTime = duration("copilot.turn.duration", "How long turns took, from their first message being taken up.")
	o.callbacks = counter("copilot.callbacks", "{callback}", "Callbacks that are over, by kind and outcome.")
	o.callbackTime = duration("copilot.callback.duration", "How long callbacks waited, until they were over.")
	o.spawnTime = duration("copilot.runtime.start.duration", "How long CLI processes took to start, by whether they did.")
	o.ends = counter("copilot.runtime.ends", "{runtime}", "CLI processes that have ended, by reason and by whether a successor is started unasked.")
	o.refused = counter("copilot.refused", "{request}", "What was refused because a limit is reached, by limit.")
	var err error
	o.streams, err = o.meter.Int64UpDownCounter("copilot.streams", metric.WithUnit("{stream}"),
		metric.WithDescription("Streaming calls under way, by method."))
	return o, errors.Join(append(errs, err)...)
}

// Silent returns an Observer that tells nobody. Trace contexts still pass through it.
func Silent() *Observer {
	o, err := New(nil, nil)
	if err != nil {
		panic(err) // instruments that do nothing have nothing to fail with
	}
	return o
}

// word makes the short form of an enum's value: its name in small letters, without what
// all names begin with.
func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// Kind is the short form of a CallbackKind's name, as the attribute has it.
func Kind(name string) string { return word(name, callbackKind) }

// TurnOver counts a turn. status is a TurnStatus's name; took is how long it ran, zero if
// it never did.
func (o *Observer) TurnOver(status string, took time.Duration) {
	by := metric.WithAttributes(attribute.String("status", word(status, turnStatus)))
	o.turns.Add(context.Background(), 1, by)
	if took > 0 {
		o.turnTime.Record(context.Background(), took.Seconds(), by)
	}
}

// CallbackOver counts a callback by the names of its CallbackKind and CallbackOutcome.
func (o *Observer) CallbackOver(kind, outcome string, took time.Duration) {
	k := attribute.String("kind", Kind(kind))
	o.callbacks.Add(context.Background(), 1, metric.WithAttributes(k, attribute.String("outcome", word(outcome, callbackOutcome))))
	o.callbackTime.Record(context.Background(), took.Seconds(), metric.WithAttributes(k))
}

// RuntimeStarted notes that the start of a CLI process took so long, and whether it failed.
func (o *Observer) RuntimeStarted(took time.Duration, err error) {
	outcome := "started"
	if err != nil {
		outcome = "failed"
	}
	o.spawnTime.Record(context.Background(), took.Seconds(), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// RuntimeEnded counts the end of a CLI process.
func (o *Observer) RuntimeEnded(cause error, restart bool) {
	reason := fault.Name(fault.ReasonOf(cause))
	if reason == "" {
		reason = "UNKNOWN"
	}
	o.ends.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason), attribute.Bool("restart", restart)))
}

// Refused counts err if it says that a limit is reached.
func (o *Observer) Refused(err error) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Reason != fault.LimitExceeded {
		return
	}
	limit := f.Metadata["limit"]
	if limit == "" {
		limit = "other"
	}
	o.refused.Add(context.Background(), 1, metric.WithAttributes(attribute.String("limit", limit)))
}

// Stream counts a streaming call of a method until the result is called.
func (o *Observer) Stream(method string) (over func()) {
	by := metric.WithAttributeSet(attribute.NewSet(attribute.String("method", strings.TrimPrefix(method, "/"))))
	o.streams.Add(context.Background(), 1, by)
	return func() { o.streams.Add(context.Background(), -1, by) }
}
