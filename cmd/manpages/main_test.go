package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// There is a page for each command, with its flags.
func TestPages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man")
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"copilot-grpc.1": "copilot-grpc-serve", "copilot-grpc-serve.1": `\-\-max\-prompt\-bytes`,
		"copilot-grpc-shim.1": "counts",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) &&
			!strings.Contains(string(text), strings.ReplaceAll(want, `\`, "")) {
			t.Errorf("%s lacks %q (%v)", name, want, err)
		}
	}
}
