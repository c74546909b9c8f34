package observe

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Figure names a metric that a Source reports on demand.
type Figure string

// Metrics that are read on demand.
const (
	Sessions         Figure = "copilot.sessions"
	TenantSessions   Figure = "copilot.tenant.sessions"
	TurnsRunning     Figure = "copilot.turns.running"
	Participants     Figure = "copilot.participants"
	CallbackHandlers Figure = "copilot.callbacks.handlers"
	CallbacksPending Figure = "copilot.callbacks.pending"
	Runtimes         Figure = "copilot.runtimes"
	RuntimeMemory    Figure = "copilot.runtimes.memory"
	Events           Figure = "copilot.events"
	EventsDropped    Figure = "copilot.events.dropped"
	Gaps             Figure = "copilot.gaps"
	JournalMemory    Figure = "copilot.journal.memory"
	JournalStored    Figure = "copilot.journal.stored"
	JournalUnwritten Figure = "copilot.journal.unwritten"
	CLICalls         Figure = "copilot.cli.calls"
	CLIRequests      Figure = "copilot.cli.requests"
	CLIQueue         Figure = "copilot.cli.queue"
	AuditEntries     Figure = "copilot.audit.entries"
	AuditQueue       Figure = "copilot.audit.queue"
)

// row describes a metric.
type row struct {
	figure     Figure
	counter    bool   // it only grows
	unit, text string // the unit as OpenTelemetry writes it
	label      string // the attribute that tells its values apart, if there are several
}

var rows = []row{
	{Sessions, false, "{session}", "Sessions, by state.", "state"},
	{TenantSessions, false, "{session}", "Sessions, by tenant.", "tenant"},
	{TurnsRunning, false, "{turn}", "Running turns.", ""},
	{Participants, false, "{participant}", "Participants of sessions.", ""},
	{CallbackHandlers, false, "{handler}", "Callers of WatchPending that handle callbacks.", ""},
	{CallbacksPending, false, "{callback}", "Callbacks waiting for an answer, by kind.", "kind"},
	{Runtimes, false, "{runtime}", "CLI processes, by state.", "state"},
	{RuntimeMemory, false, "By", "Memory of all CLI processes at the last measurement.", ""},
	{Events, true, "{event}", "Events received from the CLI.", ""},
	{EventsDropped, true, "{event}", "Events that were discarded, by reason.", "reason"},
	{Gaps, true, "{gap}", "Gaps reported to readers.", ""},
	{JournalMemory, false, "By", "Memory used by the events of all journals.", ""},
	{JournalStored, false, "By", "Stored events of all journals: on disk, or in memory without a data directory.", ""},
	{JournalUnwritten, false, "By", "Durable events waiting to be written to disk.", ""},
	{CLICalls, false, "{call}", "Calls to CLI processes in flight.", ""},
	{CLIRequests, false, "{request}", "Requests of CLI processes in flight or queued.", ""},
	{CLIQueue, false, "By", "Bytes queued until CLI processes read them.", ""},
	{AuditEntries, true, "{entry}", "Entries of the audit log, by result.", "result"},
	{AuditQueue, false, "{entry}", "Entries of the audit log waiting to be written.", ""},
}

// Put reports the value of a metric. label is the value of its attribute; "" if it has none.
type Put func(f Figure, label string, value int64)

// Source reports the current values of its metrics. It is called at each collection and must return quickly.
type Source func(put Put)

// Collect registers sources that are read at each collection. stop unregisters them.
func (o *Observer) Collect(sources ...Source) (stop func() error, err error) {
	type instrument struct {
		metric.Int64Observable
		label string
	}
	instruments := map[Figure]instrument{}
	var all []metric.Observable
	var errs []error
	for _, r := range rows {
		var made metric.Int64Observable
		var err error
		if r.counter {
			made, err = o.meter.Int64ObservableCounter(string(r.figure), metric.WithUnit(r.unit), metric.WithDescription(r.text))
		} else {
			made, err = o.meter.Int64ObservableGauge(string(r.figure), metric.WithUnit(r.unit), metric.WithDescription(r.text))
		}
		errs = append(errs, err)
		instruments[r.figure] = instrument{made, r.label}
		all = append(all, made)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	registered, err := o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		put := func(f Figure, label string, value int64) {
			i := instruments[f]
			if i.label == "" {
				to.ObserveInt64(i.Int64Observable, value)
				return
			}
			to.ObserveInt64(i.Int64Observable, value, metric.WithAttributes(attribute.String(i.label, label)))
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
