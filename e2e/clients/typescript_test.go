package clients

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// A newcomer's program in TypeScript, which make client-typescript compiles with all checks of the compiler. Without that
// the test is skipped, except in that target itself.
func TestTypeScriptNewcomer(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	program, err := filepath.Abs("../../clients/typescript/build/examples/newcomer.js")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); os.IsNotExist(err) && os.Getenv("CLIENT_TYPESCRIPT") == "" {
		t.Skip("NOT RUN: make client-typescript compiles the program")
	}
	testNewcomer(t, "node", program)
}
