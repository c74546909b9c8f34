// Command fakecopilot is the executable form of internal/testing/fakecli: it is started
// like the Copilot CLI in headless mode and misbehaves as its script says.
package main

import (
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func main() {
	os.Exit(fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
