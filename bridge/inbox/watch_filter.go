package inbox

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	maxName      = 128 // characters
	maxGrace     = time.Hour
	defaultGrace = 30 * time.Second
)

// peopleKinds are the kinds that people answer, which alone may be handled.
var peopleKinds = []bridgev1.CallbackKind{
	bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION, bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT,
	bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION, bridgev1.CallbackKind_CALLBACK_KIND_EXIT_PLAN_MODE,
	bridgev1.CallbackKind_CALLBACK_KIND_AUTO_MODE_SWITCH, bridgev1.CallbackKind_CALLBACK_KIND_SESSION_LIMITS,
	bridgev1.CallbackKind_CALLBACK_KIND_INSTALLATION_CONFIRM,
}

// request is a WatchPendingRequest that has been checked.
type request struct {
	scope
	kinds     []bridgev1.CallbackKind // empty for all without a limit
	handle    bool
	name      string
	grace     time.Duration
	heartbeat time.Duration
}

// parse checks a request of a caller.
func parse(c caller.Caller, r *bridgev1.WatchPendingRequest) (q request, err error) {
	f := r.GetFilter()
	q = request{
		scope: scope{tenant: c.Tenant, owner: f.GetOwner(), labels: f.GetLabels()},
		kinds: f.GetKinds(), handle: r.GetHandle(), name: r.GetName(), grace: defaultGrace,
	}
	if q.handle {
		if err := c.Require(caller.Drive, "handling callbacks"); err != nil {
			return q, err
		}
	}
	for i, kind := range q.kinds {
		at := fmt.Sprintf("filter.kinds[%d]", i)
		if err := fields.Known(kind, at); err != nil {
			return q, err
		}
		if kind == bridgev1.CallbackKind_CALLBACK_KIND_UNSPECIFIED || q.handle && !slices.Contains(peopleKinds, kind) {
			return q, fault.New(fault.InvalidField,
				"callbacks of the kind %v cannot be handled for many sessions", kind).WithField(at)
		}
	}
	if len(q.kinds) == 0 && q.handle {
		q.kinds = peopleKinds
	}
	if err := sessions.CheckLabels(q.labels, "filter.labels"); err != nil {
		return q, err
	}
	if q.owner != "" && !caller.ValidTenant(q.owner) {
		return q, fault.New(fault.InvalidField, "%.100q is not the name of a tenant", q.owner).WithField("filter.owner")
	}
	if n := utf8.RuneCountInString(q.name); n > maxName {
		return q, fault.New(fault.InvalidField, "name has %d characters, more than %d", n, maxName).WithField("name")
	}
	if r.GetGrace() != nil {
		if q.grace, err = fields.Duration(r.GetGrace(), "grace", 0, maxGrace); err != nil {
			return q, err
		}
	}
	q.heartbeat, err = stream.Heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	return q, err
}

// wants reports whether the filter selects callbacks of a kind.
func (q *request) wants(k *callback.Kind) bool {
	if len(q.kinds) == 0 {
		return k.Limit == 0
	}
	return slices.Contains(q.kinds, k.Type)
}

// handler returns the handler that the caller becomes.
func (q *request) handler() *handler {
	h := &handler{scope: q.scope}
	for _, kind := range q.kinds {
		if method, ok := callback.MethodOf(kind); ok {
			h.methods = append(h.methods, method)
		}
	}
	slices.Sort(h.methods)
	h.methods = slices.Compact(h.methods)
	return h
}
