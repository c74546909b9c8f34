package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

const versionUsage = "Prints the version of this program and the supported CLI versions."

func setupVersion(p *program, _ *flags) action {
	return func(_ context.Context, _ []string) error {
		_, err := fmt.Fprintf(p.stdout, "copilot-grpc %s (%s, %s/%s)\nGitHub Copilot CLI %s to %s\n",
			p.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, clibin.OldestVersion, clibin.PinnedVersion)
		return err
	}
}
