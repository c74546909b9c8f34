// Command copilot-grpc serves the GitHub Copilot CLI over gRPC. "copilot-grpc help" says
// what else it does.
package main

import (
	"cmp"
	"os"
	"regexp"
	"runtime/debug"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/app/cli"
)

// version is set by the linker, but not by "go install …@VERSION".
var version string

func main() {
	var module string
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	os.Exit(cli.Main(cmp.Or(version, releaseOf(module)), os.Args[1:]))
}

// pseudo matches the version that Go gives to a commit without a tag.
var pseudo = regexp.MustCompile(`\b\d{14}-[0-9a-f]{12}\b`)

// releaseOf returns the release, such as 0.1.0, that a module version is, or "dev". A pseudo-version is "dev": the
// libraries accept a server without a version, and would take v0.0.0-… for one that is too old.
func releaseOf(module string) string {
	if !strings.HasPrefix(module, "v") || pseudo.MatchString(module) {
		return "dev"
	}
	return strings.TrimPrefix(module, "v")
}
