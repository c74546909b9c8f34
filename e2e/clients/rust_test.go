package clients

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// A newcomer's program in Rust, which make client-rust builds without a warning of clippy. Without that the test is
// skipped, except in that target itself.
func TestRustNewcomer(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	program, err := filepath.Abs("../../clients/rust/target/debug/examples/newcomer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); os.IsNotExist(err) && os.Getenv("CLIENT_RUST") == "" {
		t.Skip("NOT RUN: make client-rust builds the program")
	}
	testNewcomer(t, program)
}
