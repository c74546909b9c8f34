package bridge

import (
	"fmt"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// A watcher that is slow loses the oldest events, and is told how many.
func TestNoticesAreBounded(t *testing.T) {
	t.Parallel()
	var all notices
	rt := &binding{id: "rt"}
	slow, other := all.add("", ""), all.add("", "other")
	const more = 10
	for i := range noticeQueue + more {
		all.take(rt, "s", fmt.Appendf(nil, `{"n":%d}`, i), false)
	}
	got := all.drain(slow)
	if len(got) != noticeQueue || got[0].lost != more {
		t.Fatalf("%d events wait, and %d are lost", len(got), got[0].lost)
	}
	if want := fmt.Sprintf(`{"n":%d}`, more); string(got[0].params) != want {
		t.Errorf("the first is %s, want %s", got[0].params, want)
	}
	all.take(rt, "other", nil, false)
	if got := all.drain(slow); len(got) != 1 || got[0].lost != 0 {
		t.Errorf("then %v", got)
	}
	if got := all.drain(other); len(got) != 1 || got[0].lost != 0 || got[0].runtime != "rt" {
		t.Errorf("the one of another session gets %v", got)
	}
	all.take(&binding{id: "theirs", profile: runtime.Profile{Tenant: "rival"}}, "other", nil, false)
	if got := len(all.drain(slow)) + len(all.drain(other)); got != 0 {
		t.Errorf("%d events of another tenant's runtime come", got)
	}
	if !all.watched() {
		t.Error("it is as if nobody watched")
	}
	all.remove(slow)
	all.remove(other)
	if all.watched() {
		t.Error("somebody watches")
	}
	all.take(rt, "", nil, false)
	if got := all.drain(slow); len(got) != 0 {
		t.Errorf("after its end it gets %v", got)
	}
}
