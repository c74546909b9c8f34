package fleet

import (
	"reflect"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// A notice says which tenant's process it comes from and which session it is about. Without a watcher there is none.
func TestNotices(t *testing.T) {
	t.Parallel()
	f := &Fleet{telemetry: newNotices(), hostEvents: newNotices()}
	rt := &Runtime{fleet: f, id: "rt", profile: runtime.Profile{Tenant: "acme"}}
	for _, test := range []struct {
		method, params, session string
		hub                     *broadcast.Hub[Notice]
	}{
		{telemetryEvent, `{"sessionId":"s","event":{}}`, "s", f.telemetry},
		{telemetryEvent, `{"event":{}}`, "", f.telemetry},
		{telemetryEvent, `[]`, "", f.telemetry},
		{hostEvent, `{"scope":{"type":"session","sessionId":"s"},"kind":"task_transition"}`, "s", f.hostEvents},
		{hostEvent, `{"sessionId":"s","scope":{"type":"global"}}`, "", f.hostEvents},
		{hostEvent, `{"scope":7}`, "", f.hostEvents},
	} {
		rt.notification(test.method, []byte(test.params)) // before anyone watches
		w := test.hub.Subscribe(func(Notice) bool { return true })
		params := []byte(test.params)
		rt.notification(test.method, params)
		clear(params) // the connection reuses its buffer
		got := w.Take().Values
		w.Close()
		if len(got) != 1 {
			t.Errorf("%s %s: %d notices, want 1", test.method, test.params, len(got))
			continue
		}
		want := Notice{Tenant: "acme", RuntimeID: "rt", SessionID: test.session, Params: []byte(test.params)}
		if !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s %s: the notice is %+v", test.method, test.params, got[0])
		}
	}
}
