package bench

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The driver of the Go library carries out every operation, and the script accepts its answers.
func TestCompareLibraries(t *testing.T) {
	t.Parallel()
	driver := filepath.Join(t.TempDir(), "libdriver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", driver, "./cmd/libdriver")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := LibraryConfig{Libraries: []Library{{Name: "go", Command: []string{driver}}}, Repeats: 1, Calls: 3, Events: 40,
		Log: io.Discard}
	table, err := CompareLibraries(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var operations []string
	for _, row := range table.Rows {
		operations = append(operations, row[1])
		if len(row) != len(table.Header) || row[0] != "go" || strings.Contains(strings.Join(row, " "), "not run") {
			t.Errorf("row %q", row)
		}
	}
	want := "tool call; event, one in a frame; event, 16 in a frame"
	if got := strings.Join(operations, "; "); got != want {
		t.Errorf("operations %q, want %q", got, want)
	}
}
