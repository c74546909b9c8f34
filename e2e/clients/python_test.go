package clients

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// A newcomer's program in Python, with the package as it is installed. `make client-python` installs it, and checks the
// types of the program; without it the test is skipped, except in that target itself.
func TestPythonNewcomer(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	library, err := filepath.Abs(filepath.Join("..", "..", "clients", "python"))
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(library, ".cache", "user", "bin", "python")
	if _, err := os.Stat(python); os.IsNotExist(err) && os.Getenv("CLIENT_PYTHON") == "" {
		t.Skip("NOT RUN: make client-python builds the package")
	} else if err != nil {
		t.Fatal(err)
	}
	testNewcomer(t, python, filepath.Join(library, "examples", "newcomer.py"))
}
