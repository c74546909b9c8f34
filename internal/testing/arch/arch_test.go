// Package arch checks the repository against its own rules: which package may import which, and that the tests and files
// that the documentation names exist. The import rules are rows in imports.txt.
package arch

import (
	_ "embed"
	"io/fs"
	"os"
	"testing"
)

//go:embed imports.txt
var importRules string

// root is the repository this test is part of.
func root(t *testing.T) fs.FS {
	t.Helper()
	dir, err := os.OpenRoot("../../..")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return dir.FS()
}

// fail reports the findings as failures.
func fail(t *testing.T, findings []Finding, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		t.Error(f)
	}
}

func TestRepositoryImports(t *testing.T) {
	t.Parallel()
	findings, err := CheckImports(root(t), importRules)
	fail(t, findings, err)
}

func TestRepositoryPaths(t *testing.T) {
	t.Parallel()
	findings, err := CheckPaths(root(t))
	fail(t, findings, err)
}

func TestRepositoryProofs(t *testing.T) {
	t.Parallel()
	findings, err := CheckTests(root(t), "docs/shim.md") // which names tests of the official SDKs
	fail(t, findings, err)
	findings, err = CheckProof(root(t), "docs/proof.md", "Promises and their tests")
	fail(t, findings, err)
}
