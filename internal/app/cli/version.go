package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
)

func newVersion() *flags {
	return newFlags("version", "", "Prints the version of this program and the supported CLI versions.")
}

func printVersion(_ context.Context, p *program, args []string) error {
	if err := newVersion().parseOnly(p, args); err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "copilot-grpc %s (%s, %s/%s)\nGitHub Copilot CLI %s to %s\n",
		p.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, clibin.OldestVersion, clibin.PinnedVersion)
	return nil
}
