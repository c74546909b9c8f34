package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
)

// What replicas tell adds up, by tenant and for all. A state that cannot be read counts as none.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	var e elsewhere
	if own, all := e.of("acme"); own != (quota.Use{}) || all != own {
		t.Errorf("before the first state: %v, %v", own, all)
	}
	e.read([]json.RawMessage{
		encodeUses(quota.Uses{"acme": {Sessions: 2, JournalBytes: 10}, "rival": {Turns: 1}, "idle": {}}),
		encodeUses(quota.Uses{"acme": {Sessions: 3, Callbacks: 4}}), []byte(`"another version"`),
	})
	own, all := e.of("acme")
	if want := (quota.Use{Sessions: 5, JournalBytes: 10, Callbacks: 4}); own != want {
		t.Errorf("acme uses %+v, want %+v", own, want)
	}
	if want := (quota.Use{Sessions: 5, JournalBytes: 10, Callbacks: 4, Turns: 1}); all != want {
		t.Errorf("all use %+v, want %+v", all, want)
	}
	e.read(nil) // the others have ended
	if own, _ := e.of("acme"); own != (quota.Use{}) {
		t.Errorf("after the end of the others acme uses %+v", own)
	}
}

// A state has the tenants with the most sessions, and no idle ones.
func TestUsesAreBounded(t *testing.T) {
	t.Parallel()
	many := quota.Uses{"idle": {}}
	for n := range 2 * maxUses {
		many[fmt.Sprint("t", n)] = quota.Use{Sessions: n + 1}
	}
	text := string(encodeUses(many))
	if n := strings.Count(text, "sessions"); n != maxUses || strings.Contains(text, "idle") {
		t.Errorf("the state has %d tenants: %.100s", n, text)
	}
	if least := fmt.Sprintf(`"t%d"`, maxUses-1); strings.Contains(text, least) {
		t.Errorf("the state has %s", least)
	}
	if len(text) > 64<<10 {
		t.Errorf("the state has %d bytes", len(text))
	}
}
