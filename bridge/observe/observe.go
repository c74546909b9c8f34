// Package observe reports spans of turns, model calls, tools and callbacks, and metrics, by OpenTelemetry's API. The
// providers decide where they go (package telemetry). Names follow OpenTelemetry's conventions for generative AI, as far
// as these have one.
//
// The span of a message begins in session.send, under the span of the call or the trace context of the prompt; the
// message carries its context to the CLI. It ends with the waiter of its turn. The span of a callback begins when the
// callback is registered, under the span that the CLI names or else the tool's or turn's, and clients receive it as
// Callback.traceparent. Without tracing the same code forwards the contexts of callers.
//
// Nothing in this package is called for each event: the owner of a value counts it, and Collect reads it on demand. An
// Observer has no goroutine; the lock of its labels guards only them.
package observe

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

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
	// tracer is nil if no spans are recorded. They then only pass trace contexts on.
	tracer  trace.Tracer
	meter   metric.Meter
	models  models
	tenants tenants

	turnLabels, kindLabels, callbackLabels, streamLabels labels

	turns, callbacks, ends, refused   metric.Int64Counter
	turnTime, callbackTime, spawnTime metric.Float64Histogram
	streams                           metric.Int64UpDownCounter
}

// Config has the providers of an Observer. A nil provider records nothing.
type Config struct {
	Tracers trace.TracerProvider
	Meters  metric.MeterProvider
	// Tenants are the tenants that metrics name, up to MaxTenants; without any there are no metrics of tenants.
	Tenants []string
}

// New returns an Observer.
func New(c Config) (*Observer, error) {
	if c.Meters == nil {
		c.Meters = metricnoop.NewMeterProvider()
	}
	o := &Observer{meter: c.Meters.Meter(Scope)}
	if c.Tracers != nil {
		o.tracer = c.Tracers.Tracer(Scope)
	}
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
	return o, errors.Join(append(errs, err, o.models.init(o.meter), o.tenants.init(o.meter, c.Tenants))...)
}

// Silent returns an Observer that records nothing. Trace contexts still pass through it.
func Silent() *Observer {
	o, err := New(Config{})
	if err != nil {
		panic(err) // instruments that do nothing have nothing to fail with
	}
	return o
}

// word returns the short form of an enum value: its name in lower case without the common prefix.
func word(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// Kind returns the short form of a CallbackKind's name, as used in attributes.
func Kind(name string) string { return word(name, callbackKind) }

// labels are the attributes of a metric by the values of its labels, so that they are made once. The values are names
// of enums or methods, or bounded, which bounds their number. It is safe for concurrent use.
type labels struct {
	mu    sync.RWMutex
	known map[[3]string]label
}

// label is an attribute set in the forms that instruments take.
type label struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// of returns the attributes for the values of the labels, which attrs makes the first time.
func (l *labels) of(values [3]string, attrs func() attribute.Set) label {
	l.mu.RLock()
	known, ok := l.known[values]
	l.mu.RUnlock()
	if ok {
		return known
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	set := metric.WithAttributeSet(attrs())
	made := label{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
	if l.known == nil {
		l.known = map[[3]string]label{}
	}
	l.known[values] = made
	return made
}

// TurnOver records the end of a tenant's turn with a span, which may be nil. status is a TurnStatus's name. took is its
// duration; zero if it never ran.
func (o *Observer) TurnOver(span *Span, tenant, status string, took time.Duration) {
	o.tenantTurn(tenant, status)
	by := o.turnLabels.of([3]string{status}, func() attribute.Set {
		return attribute.NewSet(attribute.String("status", word(status, turnStatus)))
	})
	o.turns.Add(context.Background(), 1, by.add...)
	if took > 0 {
		o.turnTime.Record(span.context(), took.Seconds(), by.record...)
	}
}

// CallbackOver records the end of a callback with a span, which may be nil. kind and outcome are names of a CallbackKind
// and a CallbackOutcome.
func (o *Observer) CallbackOver(span *Span, kind, outcome string, took time.Duration) {
	by := o.callbackLabels.of([3]string{kind, outcome}, func() attribute.Set {
		return attribute.NewSet(attribute.String("kind", Kind(kind)),
			attribute.String("outcome", word(outcome, callbackOutcome)))
	})
	o.callbacks.Add(context.Background(), 1, by.add...)
	timed := o.kindLabels.of([3]string{kind}, func() attribute.Set {
		return attribute.NewSet(attribute.String("kind", Kind(kind)))
	})
	o.callbackTime.Record(span.context(), took.Seconds(), timed.record...)
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
	reason := cmp.Or(fault.Name(fault.ReasonOf(cause)), "UNKNOWN")
	o.ends.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason), attribute.Bool("restart", restart)))
}

// Refused counts err if a limit is its reason.
func (o *Observer) Refused(err error) {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Reason != fault.LimitExceeded {
		return
	}
	limit := cmp.Or(f.Metadata["limit"], other)
	o.refused.Add(context.Background(), 1, metric.WithAttributes(attribute.String("limit", limit)))
}

// Stream adds n to the number of streaming calls of a method: 1 at their beginning and -1 at their end.
func (o *Observer) Stream(method string, n int64) {
	by := o.streamLabels.of([3]string{method}, func() attribute.Set {
		return attribute.NewSet(attribute.String("method", strings.TrimPrefix(method, "/")))
	})
	o.streams.Add(context.Background(), n, by.add...)
}
