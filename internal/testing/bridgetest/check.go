package bridgetest

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
)

// Eventually polls until holds returns true. It is for conditions without an event to wait for.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// WantFault checks that an error is a fault with a reason and a field.
func WantFault(t *testing.T, what string, err error, reason fault.Reason, field string) {
	t.Helper()
	f, ok := fields.AsFault(err)
	if !ok {
		t.Errorf("%s: error is %v, want %s about %q", what, err, reason, field)
	} else if f.Reason != reason || f.Field != field {
		t.Errorf("%s: error is %v (field %q), want %s about %q", what, err, f.Field, reason, field)
	}
}
