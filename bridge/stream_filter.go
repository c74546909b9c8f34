package bridge

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// heavy are the event types that a filter leaves out unless told otherwise.
var heavy = map[string]bool{"system.message": true, "model.messages_snapshot": true}

// mainAgent is the name of the session's own agent in a filter.
const mainAgent = "main"

// filter decides which events a reader gets. It is for one goroutine.
type filter struct {
	spec   *bridgev1.EventFilter
	agents map[string]bool
	types  map[string]bool // decided before
	last   string          // the type decided last, since deltas come in a row
	lastOK bool
}

func newFilter(f *bridgev1.EventFilter, at string) (*filter, error) {
	for i, list := range [][]string{f.GetTypes(), f.GetExcludeTypes()} {
		for _, t := range list {
			if t == "" || strings.Contains(strings.TrimSuffix(t, ".*"), "*") {
				name := []string{".types", ".exclude_types"}[i]
				return nil, fault.New(fault.InvalidField, "%q is neither an event type nor a family like \"assistant.*\"", t).WithField(at + name)
			}
		}
	}
	out := &filter{spec: f, types: map[string]bool{}}
	for _, a := range f.GetAgentIds() {
		if out.agents == nil {
			out.agents = map[string]bool{}
		}
		if a == mainAgent {
			a = ""
		}
		out.agents[a] = true
	}
	return out, nil
}

// passes reports whether the reader gets the event.
func (f *filter) passes(r *journal.Record) bool {
	if f.spec.GetExcludeEphemeral() && r.Ephemeral || f.agents != nil && !f.agents[r.Agent] {
		return false
	}
	if r.Type != "" && r.Type == f.last {
		return f.lastOK
	}
	ok, known := f.types[r.Type]
	if !known {
		ok = f.decide(r.Type)
		f.types[r.Type] = ok
	}
	f.last, f.lastOK = r.Type, ok
	return ok
}

func (f *filter) decide(eventType string) bool {
	if f.spec.GetNone() || matches(f.spec.GetExcludeTypes(), eventType) {
		return false
	}
	if len(f.spec.GetTypes()) > 0 {
		return matches(f.spec.GetTypes(), eventType)
	}
	return f.spec.GetIncludeHeavy() || !heavy[eventType]
}

func matches(patterns []string, eventType string) bool {
	for _, p := range patterns {
		if family, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(eventType, family) || p == eventType {
			return true
		}
	}
	return false
}

// ephemeral reports whether the loss of ephemeral events matters to the reader.
func (f *filter) ephemeral() bool { return !f.spec.GetExcludeEphemeral() && !f.spec.GetNone() }

const (
	defaultHeartbeat = 30 * time.Second
	maxLinger        = 100 * time.Millisecond
)

func heartbeat(d *durationpb.Duration, field string) (time.Duration, error) {
	every, err := fields.Duration(d, field, time.Second, 10*time.Minute)
	if every == 0 {
		every = defaultHeartbeat
	}
	return every, err
}

// options are StreamOptions that have been checked.
type options struct {
	form      journal.Form
	heartbeat time.Duration
	linger    time.Duration
}

func newOptions(o *bridgev1.StreamOptions) (out options, err error) {
	if err := fields.Known(o.GetFidelity(), "options.fidelity"); err != nil {
		return out, err
	}
	out.form = form(o.GetFidelity(), o.GetOriginalJson())
	if out.heartbeat, err = heartbeat(o.GetHeartbeatInterval(), "options.heartbeat_interval"); err != nil {
		return out, err
	}
	out.linger, err = fields.Duration(o.GetLinger(), "options.linger", 0, maxLinger)
	return out, err
}

func form(f bridgev1.Fidelity, original bool) journal.Form {
	exact := f == bridgev1.Fidelity_FIDELITY_EXACT
	switch {
	case exact && original:
		return journal.ExactOriginal
	case exact:
		return journal.Exact
	case original:
		return journal.TidyOriginal
	}
	return journal.Tidy
}
