package observe

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// Metrics name the tenants of the setting, with the host's own by its name in policy files. The rest are other.
func TestTenantLabels(t *testing.T) {
	t.Parallel()
	o, err := New(Config{Tenants: []string{caller.HostName, "acme"}})
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]string{caller.HostTenant: "host", "acme": "acme", "rival": "other"} {
		if got := o.Tenant(tenant); got != want {
			t.Errorf("the label of the tenant %q is %q, want %q", tenant, got, want)
		}
		if got := Silent().Tenant(tenant); got != "" {
			t.Errorf("without metrics of tenants the label of %q is %q", tenant, got)
		}
	}
}
