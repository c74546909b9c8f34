package backendtest

import (
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// Implementations without a fault pass.
func TestSound(t *testing.T) {
	t.Parallel()
	Logs(t, func(testing.TB) backend.Logs { return newFakeLogs("") })
	Requests(t, func(testing.TB) OpenRequests { return openFakeRequests("") })
}

// notices reports the faults that other checks than the wanted ones notice, or none does.
func notices[B any](t *testing.T, checks []check[B], open func(fault string) B, faults map[string][]string) {
	t.Helper()
	for fault, want := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var failed []string
			for _, c := range checks {
				if err := c.run(t, func(testing.TB) B { return open(fault) }); err != nil {
					failed = append(failed, c.name)
				}
			}
			if !slices.Equal(failed, want) {
				t.Errorf("the checks %q fail, not %q", failed, want)
			}
		})
	}
}

// Each fault is noticed, by the tests that are for it.
func TestFaults(t *testing.T) {
	t.Parallel()
	notices(t, logChecks, func(fault string) backend.Logs { return newFakeLogs(fault) }, map[string][]string{
		"stale append accepted":       {"an earlier term is refused", "a deleted log is gone"},
		"unknown last entry accepted": {"an unknown last entry is refused"},
		"opened for an earlier term":  {"a log is not opened for an earlier term"},
		"position ignored":            {"entries are read from a position"},
		"old entries stay":            {"a later epoch replaces everything"},
		"never trimmed":               {"the oldest entries are trimmed"},
		"never deleted":               {"a deleted log is gone"},
	})
	notices(t, requestChecks, openFakeRequests, map[string][]string{
		"request forgotten": {
			"a request is remembered", "a large answer is remembered", "the latest record counts",
			"an expired request is not remembered", "a forgotten request is not remembered", "keys are independent",
		},
		"begun request forgotten":    {"a request is remembered"},
		"failed request remembered":  {"the latest record counts"},
		"expired request remembered": {"an expired request is not remembered"},
		"newer record forgotten":     {"a forgotten request is not remembered"},
		"large answer cut":           {"a large answer is remembered"},
		"tenants mixed":              {"keys are independent"},
	})
}
