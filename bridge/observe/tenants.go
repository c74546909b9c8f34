package observe

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// MaxTenants bounds the tenants that metrics name. Each has up to 9 series.
const MaxTenants = 100

// tenants has the metrics of tenants. Its set of names does not change.
type tenants struct {
	names         map[string]bool // empty: nothing is recorded
	turns, tokens metric.Int64Counter
	cost          metric.Float64Counter
	labels        labels
}

func (t *tenants) init(meter metric.Meter, names []string) error {
	t.names = map[string]bool{}
	for _, name := range names {
		t.names[name] = true
	}
	var errs [3]error
	t.turns, errs[0] = meter.Int64Counter("copilot.tenant.turns", metric.WithUnit("{turn}"),
		metric.WithDescription("Ended turns, by tenant and outcome."))
	t.tokens, errs[1] = meter.Int64Counter("copilot.tenant.tokens", metric.WithUnit("{token}"),
		metric.WithDescription("Tokens of model calls, by tenant and type."))
	t.cost, errs[2] = meter.Float64Counter("copilot.tenant.cost",
		metric.WithDescription("Billing multipliers of model calls, by tenant."))
	return errors.Join(errs[:]...)
}

// Tenant returns the label of a tenant: its name, or other if metrics do not name it; empty if there are no metrics of tenants.
func (o *Observer) Tenant(name string) string {
	name = cmp.Or(name, caller.HostName)
	switch {
	case len(o.tenants.names) == 0:
		return ""
	case o.tenants.names[name]:
		return name
	}
	return other
}

// of returns the labels of a tenant's metric, with another label if key is not empty.
func (t *tenants) of(tenant, key, value string) []metric.AddOption {
	return t.labels.of([3]string{tenant, key, value}, func() attribute.Set {
		if key == "" {
			return attribute.NewSet(attribute.String("tenant", tenant))
		}
		return attribute.NewSet(attribute.String("tenant", tenant), attribute.String(key, value))
	}).add
}

// tenantTurn counts a turn of a tenant. status is a TurnStatus's name.
func (o *Observer) tenantTurn(tenant, status string) {
	if label := o.Tenant(tenant); label != "" {
		o.tenants.turns.Add(context.Background(), 1, o.tenants.of(label, "status", word(status, turnStatus))...)
	}
}

// tenantCall counts a model call of a tenant.
func (o *Observer) tenantCall(tenant string, c *ModelCall) {
	label := o.Tenant(tenant)
	if label == "" {
		return
	}
	o.tenants.tokens.Add(context.Background(), c.Input, o.tenants.of(label, "type", "input")...)
	o.tenants.tokens.Add(context.Background(), c.Output, o.tenants.of(label, "type", "output")...)
	o.tenants.cost.Add(context.Background(), c.Cost, o.tenants.of(label, "", "")...)
}
