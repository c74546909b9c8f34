package observe

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Figure is a metric that a Source reports on demand.
type Figure struct {
	name, unit, text string // the unit as OpenTelemetry writes it
	label            string // the attribute that tells its values apart, if there are several
	counter          bool   // it only grows
}

// figures are all metrics that are read on demand.
var figures []*Figure

func gauge(name, unit, text, label string) *Figure {
	f := &Figure{name: name, unit: unit, text: text, label: label}
	figures = append(figures, f)
	return f
}

func counter(name, unit, text, label string) *Figure {
	f := gauge(name, unit, text, label)
	f.counter = true
	return f
}

// Metrics that are read on demand.
var (
	Sessions         = gauge("copilot.sessions", "{session}", "Sessions, by state.", "state")
	TenantSessions   = gauge("copilot.tenant.sessions", "{session}", "Sessions, by tenant.", "tenant")
	TurnsRunning     = gauge("copilot.turns.running", "{turn}", "Running turns.", "")
	Participants     = gauge("copilot.participants", "{participant}", "Participants of sessions.", "")
	CallbackHandlers = gauge("copilot.callbacks.handlers", "{handler}", "Callers of WatchPending that handle callbacks.", "")
	CallbacksPending = gauge("copilot.callbacks.pending", "{callback}", "Callbacks waiting for an answer, by kind.", "kind")
	Runtimes         = gauge("copilot.runtimes", "{runtime}", "CLI processes, by state.", "state")
	RuntimeMemory    = gauge("copilot.runtimes.memory", "By", "Memory of all CLI processes at the last measurement.", "")
	Events           = counter("copilot.events", "{event}", "Events received from the CLI.", "")
	EventsDropped    = counter("copilot.events.dropped", "{event}", "Events that were discarded, by reason.", "reason")
	Gaps             = counter("copilot.gaps", "{gap}", "Gaps reported to readers.", "")
	JournalMemory    = gauge("copilot.journal.memory", "By", "Memory used by the events of all journals.", "")
	JournalStored    = gauge("copilot.journal.stored", "By", "Stored events of all journals: on disk, or in memory without a data directory.", "")
	JournalUnwritten = gauge("copilot.journal.unwritten", "By", "Durable events waiting to be written to disk.", "")
	CLICalls         = gauge("copilot.cli.calls", "{call}", "Calls to CLI processes in flight.", "")
	CLIRequests      = gauge("copilot.cli.requests", "{request}", "Requests of CLI processes in flight or queued.", "")
	CLIQueue         = gauge("copilot.cli.queue", "By", "Bytes queued until CLI processes read them.", "")
	AuditEntries     = counter("copilot.audit.entries", "{entry}", "Entries of the audit log, by result.", "result")
	AuditQueue       = gauge("copilot.audit.queue", "{entry}", "Entries of the audit log waiting to be written.", "")
)

// Put reports the value of a metric. label is the value of its attribute; "" if it has none.
type Put func(f *Figure, label string, value int64)

// Source reports the current values of its metrics. It is called at each collection and must return quickly.
type Source func(put Put)

// Collect registers sources that are read at each collection. stop unregisters them.
func (o *Observer) Collect(sources ...Source) (stop func() error, err error) {
	instruments := map[*Figure]metric.Int64Observable{}
	var all []metric.Observable
	var errs []error
	for _, f := range figures {
		var made metric.Int64Observable
		var err error
		if f.counter {
			made, err = o.meter.Int64ObservableCounter(f.name, metric.WithUnit(f.unit), metric.WithDescription(f.text))
		} else {
			made, err = o.meter.Int64ObservableGauge(f.name, metric.WithUnit(f.unit), metric.WithDescription(f.text))
		}
		errs = append(errs, err)
		instruments[f], all = made, append(all, made)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	registered, err := o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		put := func(f *Figure, label string, value int64) {
			if f.label == "" {
				to.ObserveInt64(instruments[f], value)
				return
			}
			to.ObserveInt64(instruments[f], value, metric.WithAttributes(attribute.String(f.label, label)))
		}
		for _, source := range sources {
			source(put)
		}
		return nil
	}, all...)
	if err != nil {
		return nil, err
	}
	return registered.Unregister, nil
}

// Build is what a program was built from.
type Build struct{ Version, Revision, GoVersion string }

// Built reports a metric with the value 1 and the build as its labels. cliVersion returns the version of the CLI, which is
// empty while it is unknown; it is called at each collection.
func (o *Observer) Built(b Build, cliVersion func() string) error {
	_, err := o.meter.Int64ObservableGauge("copilot.build.info",
		metric.WithDescription("1, with the versions of the server and of the CLI as labels."),
		metric.WithInt64Callback(func(_ context.Context, to metric.Int64Observer) error {
			to.Observe(1, metric.WithAttributes(attribute.String("version", b.Version), attribute.String("revision", b.Revision),
				attribute.String("go_version", b.GoVersion), attribute.String("cli_version", cliVersion())))
			return nil
		}))
	return err
}
