package clibin

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
)

// The README names the oldest and the newest supported version, and docs/tested-versions.txt, which make e2e-versions
// writes, has only versions between them. That it has all of them is checked there.
func TestReadmeNamesSupportedVersions(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("CLI versions %s to %s are supported", OldestVersion, PinnedVersion)
	if !strings.Contains(string(readme), want) {
		t.Errorf("the README does not say %q", want)
	}
	tested := versionsOf(t, filepath.Join(root, "docs", "tested-versions.txt"))
	supported := versionsOf(t, filepath.Join(root, "internal", "gen", "schemagen", "pins.txt"))
	if len(supported) == 0 || supported[0] != OldestVersion || supported[len(supported)-1] != PinnedVersion {
		t.Errorf("the API is made of the versions %q, which is not %s to %s", supported, OldestVersion, PinnedVersion)
	}
	for _, version := range tested {
		if !slices.Contains(supported, version) {
			t.Errorf("%s was tested, and is not supported", version)
		}
	}
}

// versionsOf are the first words of a file's lines, which are in the order of versions.
func versionsOf(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			versions = append(versions, words[0])
		}
	}
	if !slices.IsSortedFunc(versions, func(a, b string) int {
		v, _ := quirks.ParseVersion(a)
		w, _ := quirks.ParseVersion(b)
		return v.Compare(w)
	}) {
		t.Fatalf("%s: versions are out of order: %q", file, versions)
	}
	return versions
}
