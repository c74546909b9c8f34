package stream

import (
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// large reports whether a filter excludes an event type by default.
func large(eventType string) bool {
	return eventType == "system.message" || eventType == "model.messages_snapshot"
}

// mainAgent is the name of the session's own agent in a filter.
const mainAgent = "main"

// Filter decides which events a reader gets. It may only be used by one goroutine at a time. A nil Filter excludes the
// large types.
type Filter struct {
	spec   *bridgev1.EventFilter
	agents map[string]bool
	types  map[string]bool // decided before; nil if none was
	last   string          // the type decided last, since deltas come in a row
	lastOK bool
}

// NewFilter checks a filter; at is its path in the request. Without a filter it returns nil.
func NewFilter(f *bridgev1.EventFilter, at string) (*Filter, error) {
	if f == nil {
		return nil, nil
	}
	for i, list := range [][]string{f.GetTypes(), f.GetExcludeTypes()} {
		for _, t := range list {
			if t == "" || strings.Contains(strings.TrimSuffix(t, ".*"), "*") {
				name := []string{".types", ".exclude_types"}[i]
				return nil, fault.New(fault.InvalidField, "%q is neither an event type nor a family like \"assistant.*\"", t).WithField(at + name)
			}
		}
	}
	out := &Filter{spec: f}
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

// Passes reports whether the reader gets the event.
func (f *Filter) Passes(r *journal.Record) bool {
	if f == nil {
		return !large(r.Type)
	}
	if f.spec.GetExcludeEphemeral() && r.Ephemeral || f.agents != nil && !f.agents[r.Agent] {
		return false
	}
	if r.Type != "" && r.Type == f.last {
		return f.lastOK
	}
	ok, known := f.types[r.Type]
	if !known {
		ok = f.decide(r.Type)
		if f.types == nil {
			f.types = map[string]bool{}
		}
		f.types[r.Type] = ok
	}
	f.last, f.lastOK = r.Type, ok
	return ok
}

func (f *Filter) decide(eventType string) bool {
	if f.spec.GetExcludeAll() || matches(f.spec.GetExcludeTypes(), eventType) {
		return false
	}
	if len(f.spec.GetTypes()) > 0 {
		return matches(f.spec.GetTypes(), eventType)
	}
	return f.spec.GetIncludeLarge() || !large(eventType)
}

func matches(patterns []string, eventType string) bool {
	for _, p := range patterns {
		if family, ok := strings.CutSuffix(p, "*"); ok && strings.HasPrefix(eventType, family) || p == eventType {
			return true
		}
	}
	return false
}

// Ephemeral reports whether the loss of ephemeral events matters to the reader.
func (f *Filter) Ephemeral() bool {
	return f == nil || !f.spec.GetExcludeEphemeral() && !f.spec.GetExcludeAll()
}
