package quirks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
)

func TestIn(t *testing.T) {
	t.Parallel()
	between := quirks.Quirk{From: "1.0.83-2", Until: "1.0.92"}
	for version, want := range map[string]bool{
		"1.0.81": false, "1.0.83-1": false, "1.0.83-2": true, "1.0.83-10": true, "1.0.83": true, "v1.0.91": true,
		"1.0.92-0": true, "1.0.92": false, "1.0.102": false, "1.1.0": false, "2.0.1": false, "": false, "1.0.": false,
	} {
		if got := between.In(version); got != want {
			t.Errorf("%q: got %v, want %v", version, got, want)
		}
	}
	if !(quirks.Quirk{Until: "1.0.92"}).In("1.0.0") || !(quirks.Quirk{From: "1.0.92"}).In("1.0.999") {
		t.Error("a quirk without an end ends")
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	t.Parallel()
	order := []string{"0.9.100", "1.0.81", "1.0.83-2", "1.0.83-10", "1.0.83", "1.0.84-4", "1.0.102", "1.1.0"}
	for i, a := range order {
		for j, b := range order {
			v, okV := quirks.ParseVersion(a)
			w, okW := quirks.ParseVersion(b)
			if got := v.Compare(w); !okV || !okW || (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s: %d", a, b, got)
			}
		}
	}
}

// TestTable: each row is complete, and its test exists.
func TestTable(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "e2e", "*", "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	names := map[string]bool{}
	for _, q := range quirks.All {
		from, hasFrom := quirks.ParseVersion(q.From)
		until, hasUntil := quirks.ParseVersion(q.Until)
		switch {
		case q.Name == "" || names[q.Name]:
			t.Errorf("%+v: no name, or that of another", q)
		case q.From != "" && !hasFrom, q.Until != "" && !hasUntil, !hasFrom && !hasUntil, hasFrom && hasUntil && from.Compare(until) >= 0:
			t.Errorf("%s: from %q until %q is no range of versions", q.Name, q.From, q.Until)
		case q.Why == "":
			t.Errorf("%s: no reason", q.Name)
		case !strings.Contains(tests.String(), "func "+q.Test+"(t *testing.T)"):
			t.Errorf("%s: there is no test %s in e2e", q.Name, q.Test)
		}
		names[q.Name] = true
	}
}
