// Command loadcli stands in for the Copilot CLI in benchmarks.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/bench/loadcli"
)

func main() {
	if slices.Contains(os.Args[1:], "--version") {
		fmt.Printf("GitHub Copilot CLI %s.\n", loadcli.Version)
		return
	}
	if err := loadcli.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
