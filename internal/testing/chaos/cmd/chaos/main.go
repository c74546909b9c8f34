// Command chaos plays seeded fault schedules against the server and checks what came of
// them: see package chaos.
package main

import (
	"os"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/chaos"
)

func main() {
	if code, ok := chaos.Otherwise(); ok {
		os.Exit(code)
	}
	os.Exit(chaos.Main(os.Args[1:], os.Stdout, os.Stderr))
}
