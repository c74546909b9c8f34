package harness

import (
	"os"
	"testing"
)

// EntryEnv, if set, makes each host two replicas of a cluster: the tests' clients are connected to one of them, and the
// other one has the sessions. It needs the tag nats: the test program runs the NATS server.
const EntryEnv = "E2E_ENTRY"

// SkipAtEntry skips a test of what only one server answers for itself.
func SkipAtEntry(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(EntryEnv) != "" {
		t.Skip("another replica has the sessions: " + what)
	}
}
