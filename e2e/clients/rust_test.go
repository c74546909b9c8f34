package clients

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// rustExample returns the path of an example, which make client-rust builds without a warning of clippy. Without that the
// test is skipped, except in that target itself.
func rustExample(t *testing.T, name string) string {
	t.Helper()
	harness.SkipWithoutCLI(t)
	program, err := filepath.Abs(filepath.Join("../../clients/rust/target/debug/examples", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); os.IsNotExist(err) && os.Getenv("CLIENT_RUST") == "" {
		t.Skip("NOT RUN: make client-rust builds the program")
	}
	return program
}

// A newcomer's program in Rust.
func TestRustNewcomer(t *testing.T) {
	t.Parallel()
	testNewcomer(t, rustExample(t, "newcomer"))
}
