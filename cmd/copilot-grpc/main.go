// Command copilot-grpc serves the GitHub Copilot CLI over gRPC. "copilot-grpc help" says
// what else it does.
package main

import (
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/app/cli"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(cli.Main(version, os.Args[1:])) }
