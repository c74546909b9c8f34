package harness

import (
	"os"
	"os/exec"
	"slices"
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
	// What the tests' scripts set is not the user's: the server warns of variables that are like its own.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "COPILOT_GRPC_") })
	return append(env, "HOME="+home, "XDG_CACHE_HOME=", "XDG_STATE_HOME=",
		"COPILOT_GRPC_CLI="+os.Getenv(CLIEnv),
		"GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1], "GOPATH="+dirs[2],
		// With the Makefile's flags the build cache has the packages already.
		"GOFLAGS=-buildvcs=false -trimpath -tags=grpcnotrace")
}
