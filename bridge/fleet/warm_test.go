package fleet

import (
	"testing"
	"time"
)

// A spare runtime is started once at a time, and a minute after a failure at the earliest.
func TestWarmerPauses(t *testing.T) {
	t.Parallel()
	var w warmer
	now := time.Unix(1000, 0)
	if !w.begin("a", now) || w.begin("a", now.Add(time.Hour)) {
		t.Error("a profile that is starting is started again, or not at all")
	}
	if !w.begin("b", now) {
		t.Error("another profile waits")
	}
	w.end("a", true, now.Add(warmRetry))
	if w.begin("a", now.Add(warmRetry-1)) || !w.begin("a", now.Add(warmRetry)) {
		t.Error("the pause after a failure is wrong")
	}
	w.end("a", false, time.Time{})
	if !w.begin("a", now) {
		t.Error("a runtime that has started and ended is not started again")
	}
}
