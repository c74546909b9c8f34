package observe

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Figure names something that is counted by its owner and read when somebody looks.
type Figure string

// The figures.
const (
	Sessions         Figure = "copilot.sessions"
	TurnsRunning     Figure = "copilot.turns.running"
	Participants     Figure = "copilot.participants"
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

// row says what a figure is.
type row struct {
	figure     Figure
	counter    bool   // it only grows
	unit, text string // the unit as OpenTelemetry writes it
	label      string // the attribute that tells its values apart, if there are several
}

var rows = []row{
	{Sessions, false, "{session}", "Sessions that the bridge knows, by state.", "state"},
	{TurnsRunning, false, "{turn}", "Turns that run.", ""},
	{Participants, false, "{participant}", "Participants of sessions.", ""},
	{CallbacksPending, false, "{callback}", "Callbacks that wait for an answer, by kind.", "kind"},
	{Runtimes, false, "{runtime}", "CLI processes, by state.", "state"},
	{RuntimeMemory, false, "By", "Memory of all CLI processes, as last seen.", ""},
	{Events, true, "{event}", "Events taken from the CLI.", ""},
	{EventsDropped, true, "{event}", "Events that are not, or no longer, kept, by reason.", "reason"},
	{Gaps, true, "{gap}", "Gaps that readers were told of.", ""},
	{JournalMemory, false, "By", "Events of all journals in memory.", ""},
	{JournalStored, false, "By", "Events of all journals that are kept: on disk, or in memory where there is none.", ""},
	{JournalUnwritten, false, "By", "Durable events that wait for the disk.", ""},
	{CLICalls, false, "{call}", "Calls to CLI processes under way.", ""},
	{CLIRequests, false, "{request}", "Requests of CLI processes under way or waiting.", ""},
	{CLIQueue, false, "By", "What waits for CLI processes to read it.", ""},
	{AuditEntries, true, "{entry}", "Entries of the audit log, by what became of them.", "result"},
	{AuditQueue, false, "{entry}", "Entries of the audit log that wait to be written.", ""},
}

// Put takes a value of a figure. label is the value of its attribute, "" if it has none.
type Put func(f Figure, label string, value int64)

// Source puts the figures that it owns, as they are now. It is called when somebody looks,
// and must not take long.
type Source func(put Put)

// Collect has the sources read whenever somebody looks. The result ends that.
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
