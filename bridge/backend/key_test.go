package backend_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// The session of a request without a name has a name of the request's own.
func TestSessionID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range []backend.Key{
		{Operation: backend.OpCreate, ID: "a"}, {Operation: backend.OpRun, ID: "a"},
		{Operation: backend.OpCreate, ID: "b"}, {Tenant: "t", Operation: backend.OpCreate, ID: "a"},
	} {
		id := k.SessionID()
		if len(id) != 36 || id != k.SessionID() || seen[id] {
			t.Errorf("%+v makes %q", k, id)
		}
		seen[id] = true
	}
	if id := (backend.Key{Operation: backend.OpCreate}).SessionID(); id != "" {
		t.Errorf("a request without an id makes %q", id)
	}
}
