package harness

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// UserEnv returns the environment of a user with an empty home, who types what a page says. The CLI is the one that is
// tested, and Go's caches are those of the machine.
func UserEnv(t *testing.T, home string) []string {
	t.Helper()
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(caches))
	return append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME=", "XDG_STATE_HOME=",
		"COPILOT_GRPC_CLI="+os.Getenv(CLIEnv),
		"GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1], "GOPATH="+dirs[2],
		// With the Makefile's flags the build cache has the packages already.
		"GOFLAGS=-buildvcs=false -trimpath -tags=grpcnotrace")
}
