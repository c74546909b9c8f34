package clibin

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
)

// TestReadmeSaysWhatWasTested: the README says neither more nor less than
// docs/tested-versions.txt, which make e2e-versions writes, and that has supported versions
// only. With WRITE_README the statement is written instead. That all of them are tested is
// the business of make e2e-versions, which fails if one does.
func TestReadmeSaysWhatWasTested(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	tested := versionsOf(t, filepath.Join(root, "docs", "tested-versions.txt"))
	want := fmt.Sprintf("CLI versions %s to %s are supported. The end-to-end sample passed on: %s.",
		OldestVersion, PinnedVersion, cmp.Or(strings.Join(tested, ", "), "none yet"))
	file := filepath.Join(root, "README.md")
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	statement := regexp.MustCompile(`(?s)(<!-- tested:[^\n]*-->\n)(.*?)\n(<!-- end -->)`)
	found := statement.FindSubmatch(readme)
	if found == nil {
		t.Fatal("the README has no place for what was tested")
	}
	if os.Getenv("WRITE_README") != "" {
		readme = statement.ReplaceAll(readme, []byte("${1}"+wrapped(want)+"\n${3}"))
		if err := os.WriteFile(file, readme, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got := strings.Join(strings.Fields(string(found[2])), " "); got != want {
		t.Errorf("the README says %q, the run says %q: run make e2e-versions", got, want)
	}
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

// wrapped breaks a text into lines as the README has them.
func wrapped(text string) string {
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+len(word) >= 100:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String()
}
