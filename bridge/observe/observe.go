// Package observe reports spans of turns and callbacks, and metrics, by OpenTelemetry's API. The providers decide
// where they go (package telemetry).
//
// Nothing in this package is called for each event. Owners count such values themselves, and Collect reads them on
// demand. An Observer has no lock and no goroutine.
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

// Scope is the name of the instrumentation scope.
const Scope = "github.com/copilot-grpc/copilot-grpc"

// Attribute names. No value contains prompts, arguments, results or secrets.
const (
	AttrSession  = "session.id"
	AttrTenant   = "copilot.tenant"
	AttrMessage  = "copilot.message.id"
	AttrStatus   = "copilot.turn.status"
	AttrCallback = "copilot.callback.id"
	AttrKind     = "copilot.callback.kind"
	AttrOutcome  = "copilot.callback.outcome"
)

// seconds are the histogram boundaries for durations that people and models determine.
var seconds = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}

// Observer has the instruments. It is safe for concurrent use.
type Observer struct {
	tracer trace.Tracer
	meter  metric.Meter

	turns, callbacks, ends, refused   metric.Int64Counter
	turnTime, callbackTime, spawnTime metric.Float64Histogram
	streams                           metric.Int64UpDownCounter
}

// New returns an Observer that uses the providers. A nil provider records nothing.
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
	o.turns = counter("copilot.turns", "{turn}", "Ended turns, by outcome.")
	o.turnTime = duration("copilot.turn.duration", "Duration of turns, from the start of their first message.")
	o.callbacks = counter("copilot.callbacks", "{callback}", "Resolved callbacks, by kind and outcome.")
	o.callbackTime = duration("copilot.callback.duration", "Time from the request of a callback until it was resolved.")
	o.spawnTime = duration("copilot.runtime.start.duration", "Start time of CLI processes, by success.")
	o.ends = counter("copilot.runtime.ends", "{runtime}", "Ended CLI processes, by reason and by whether the bridge restarts them at once.")
	o.refused = counter("copilot.refused", "{request}", "Requests refused because a limit was reached, by limit.")
	var err error
	o.streams, err = o.meter.Int64UpDownCounter("copilot.streams", metric.WithUnit("{stream}"),
		metric.WithDescription("Streaming calls in progress, by method."))
	return o, errors.Join(append(errs, err)...)
}

// Silent returns an Observer that records nothing. Trace contexts still pass through it.
func Silent() *Observer {
	o, err := New(nil, nil)
	if err != nil {
		panic(err) // instruments that do nothing have nothing to fail with
	}
	return o
}

// word returns the short form of an enum value: its name in lower case without the common prefix.
func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// Kind returns the short form of a CallbackKind's name, as used in attributes.
func Kind(name string) string { return word(name, callbackKind) }

// TurnOver records the end of a turn. status is a TurnStatus's name. took is its duration; zero if it never ran.
func (o *Observer) TurnOver(status string, took time.Duration) {
	by := metric.WithAttributes(attribute.String("status", word(status, turnStatus)))
	o.turns.Add(context.Background(), 1, by)
	if took > 0 {
		o.turnTime.Record(context.Background(), took.Seconds(), by)
	}
}

// CallbackOver records the end of a callback. kind and outcome are names of a CallbackKind and a CallbackOutcome.
func (o *Observer) CallbackOver(kind, outcome string, took time.Duration) {
	k := attribute.String("kind", Kind(kind))
	o.callbacks.Add(context.Background(), 1, metric.WithAttributes(k, attribute.String("outcome", word(outcome, callbackOutcome))))
	o.callbackTime.Record(context.Background(), took.Seconds(), metric.WithAttributes(k))
}

// RuntimeStarted records the start of a CLI process: its duration, and its error if it failed.
func (o *Observer) RuntimeStarted(took time.Duration, err error) {
	outcome := "started"
	if err != nil {
		outcome = "failed"
	}
	o.spawnTime.Record(context.Background(), took.Seconds(), metric.WithAttributes(attribute.String("outcome", outcome)))
}

// RuntimeEnded records the end of a CLI process.
func (o *Observer) RuntimeEnded(cause error, restart bool) {
	reason := fault.Name(fault.ReasonOf(cause))
	if reason == "" {
		reason = "UNKNOWN"
	}
	o.ends.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason), attribute.Bool("restart", restart)))
}

// Refused counts err if a limit is its reason.
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

// Stream counts a streaming call of a method until over is called.
func (o *Observer) Stream(method string) (over func()) {
	by := metric.WithAttributeSet(attribute.NewSet(attribute.String("method", strings.TrimPrefix(method, "/"))))
	o.streams.Add(context.Background(), 1, by)
	return func() { o.streams.Add(context.Background(), -1, by) }
}
