package event

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A type that means something to the journal or to callbacks is never plain, whether its name
// comes for the first time or again.
func TestPlainTypes(t *testing.T) {
	t.Parallel()
	want := map[string]bool{"assistant.message_delta": true, "tool.execution_complete": true}
	for kind := range journal.KeptTypes {
		want[kind] = false
	}
	for number := range bridgev1.CallbackKind_name {
		method, _ := callback.MethodOf(bridgev1.CallbackKind(number))
		if k := callback.ForEvent(method); k != nil {
			want[k.Method], want[k.DoneEvent] = false, false
		}
	}
	names := Names{}
	for range 2 {
		for kind, plain := range want {
			if rec := Record(translate.EventHead{Type: []byte(kind)}, nil, names); rec.Type != kind || rec.Plain != plain {
				t.Errorf("%s: a record of type %q, plain: %v, want %v", kind, rec.Type, rec.Plain, plain)
			}
		}
	}
}
