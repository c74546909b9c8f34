package quota

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

func wantLimit(t *testing.T, what string, err error, name string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	switch {
	case name == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case name != "" && (!ok || f.Reason != fault.LimitExceeded || f.Metadata["limit"] != name || f.RetryAfter <= 0):
		t.Errorf("%s: error %v, want the limit %q and when to try again", what, err, name)
	}
}

func TestGauge(t *testing.T) {
	t.Parallel()
	var g Gauge
	limit := Limit{Name: "streams", Tenant: 2, Overall: 3}
	first, err := g.Take("a", limit)
	wantLimit(t, "a's first", err, "")
	_, err = g.Take("a", limit)
	wantLimit(t, "a's second", err, "")
	_, err = g.Take("a", limit)
	wantLimit(t, "a's third", err, "streams")
	_, err = g.Take("b", limit)
	wantLimit(t, "b's first", err, "")
	_, err = g.Take("b", limit)
	wantLimit(t, "everybody's fourth", err, "streams")
	first()
	first() // counts once
	_, err = g.Take("b", limit)
	wantLimit(t, "when a gave one back", err, "")
	_, err = g.Take("c", limit)
	wantLimit(t, "everybody's fourth again", err, "streams")
	_, err = g.Take("c", Limit{Name: "streams"})
	wantLimit(t, "without a limit", err, "")
	_, err = g.TakeBeside("d", Limit{Name: "turns", Tenant: 5}, 5, 0)
	wantLimit(t, "with five elsewhere", err, "turns")
}

// The error for a limit that no policy sets does not name a setting of the policy.
func TestFixedLimit(t *testing.T) {
	t.Parallel()
	var g Gauge
	limit := Limit{Name: "waiting calls", Tenant: 1, Fixed: true}
	if _, err := g.Take("a", limit); err != nil {
		t.Fatal(err)
	}
	_, err := g.Take("a", limit)
	wantLimit(t, "the second", err, "waiting calls")
	f, _ := errors.AsType[*fault.Error](err)
	if setting, has := f.Metadata["setting"]; has || strings.Contains(f.Message, "policy") {
		t.Errorf("the error names the setting %q: %v", setting, f)
	}
}

// A tenant that asks for too much takes nothing from the others.
func TestRatesAreATenantsOwn(t *testing.T) {
	t.Parallel()
	var r Rates
	now := time.Unix(1_000_000, 0)
	own, all := Rate{PerSecond: 1, Burst: 5}, Rate{PerSecond: 10, Burst: 10}
	refused := 0
	for range 100 {
		if r.Do("noisy", "requests_per_second", own, all, now) != nil {
			refused++
		}
	}
	if refused != 95 {
		t.Errorf("%d of the noisy tenant's are refused, want 95", refused)
	}
	for i := range 5 {
		wantLimit(t, fmt.Sprint("the quiet tenant's ", i), r.Do("quiet", "requests_per_second", own, all, now), "")
	}
	wantLimit(t, "everybody's eleventh", r.Do("third", "requests_per_second", own, all, now), "requests_per_second")
	wantLimit(t, "a second later", r.Do("noisy", "requests_per_second", own, all, now.Add(time.Second)), "")
	wantLimit(t, "without limits", r.Do("noisy", "requests_per_second", Rate{}, Rate{}, now), "")
}
