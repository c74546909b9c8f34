package manage

import (
	"testing"

	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// For host events that may contain credentials, watchers receive only the type and the subject.
func TestHostEventsAreWithheld(t *testing.T) {
	t.Parallel()
	id := "s"
	event := func(kind string) *cliv1.CallbackHostServiceEventRequest {
		return &cliv1.CallbackHostServiceEventRequest{
			Scope: &cliv1.HostEventScope{ScopeType: "session", SessionId: &id, JsonExtra: `{"more":1}`}, Kind: kind,
			PayloadJson: `{"token":"secret"}`, JsonExtra: `{"token":"secret"}`,
		}
	}
	for _, kind := range []string{"task_transition", "plugin_caches_invalidated", "auth_changed", "some_day", ""} {
		out := &bridgev1.WatchHostEventsResponse{RuntimeId: "rt", Event: event(kind)}
		withhold(out)
		want := &bridgev1.WatchHostEventsResponse{RuntimeId: "rt", Event: event(kind)}
		if !openHostEvents[kind] {
			want.PayloadWithheld = true
			scope := &cliv1.HostEventScope{ScopeType: "session", SessionId: &id}
			want.Event = &cliv1.CallbackHostServiceEventRequest{Scope: scope, Kind: kind}
		}
		if !proto.Equal(out, want) {
			t.Errorf("%q: %v, want %v", kind, out, want)
		}
	}
	if openHostEvents["auth_changed"] || !openHostEvents["task_transition"] {
		t.Error("what carries credentials is told, or what carries none is not")
	}
}
