package retest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// prelude begins every made-up package: first reports whether a test runs for the first time.
const prelude = `package made

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var _ = fmt.Sprint(flag.Lookup, os.Exit)

func first(t *testing.T) bool {
	name := t.Name() + ".ran"
	_, err := os.Stat(name)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return err != nil
}
`

// made are the packages of the made-up module.
var made = map[string]string{
	"wobbly": `
func TestWobbly(t *testing.T) {
	isFirst := first(t)
	t.Run("part", func(t *testing.T) {
		if isFirst { t.Error("the first failure") }
	})
}
func TestAlone(t *testing.T) {
	if first(t) { t.Fatal("among others") }
	if flag.Lookup("test.parallel").Value.String() != "1" { t.Error("not alone") }
	if flag.Lookup("test.run").Value.String() != "^TestAlone$" { t.Error("with others") }
}
func TestSteady(t *testing.T) { t.Log("a log of a test that passes") }`,
	"third":  `func TestThird(t *testing.T) { if first(t) { t.Fail() } }`,
	"fourth": `func TestFourth(t *testing.T) { if first(t) { t.Fail() } }`,
	"broken": `func TestBroken(t *testing.T) { t.Error("it fails always") }`,
	"panics": `func TestPanics(t *testing.T) { if first(t) { panic("once") } }`,
	"exits":  `func TestExits(t *testing.T) { if first(t) { os.Exit(1) } }`,
	"racy": `func TestRacy(t *testing.T) {
	if first(t) { fmt.Println("WARNING: DATA RACE"); t.Error("race detected") }
}`,
	"after": `func TestPasses(t *testing.T) {}
func TestMain(m *testing.M) { m.Run(); os.Exit(1) }`,
	"unbuildable": `func TestUnbuildable(t *testing.T) { undefined() }`,
	"slow":        `func TestSlow(t *testing.T) { if first(t) { select {} } }`,
	"fine": `func TestFine(t *testing.T) {
	t.Log("a log of a test that passes")
	fmt.Println("what it prints")
}`,
}

// newModule writes a module with the named packages and returns a Runner for it.
func newModule(t *testing.T, packages ...string) (*Runner, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module made\n\ngo 1.26\n"}
	for _, name := range packages {
		files[name+"/made_test.go"] = prelude + made[name]
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := new(bytes.Buffer)
	list := filepath.Join(dir, "bin", "flaky.txt")
	return &Runner{Dir: dir, Flags: []string{"-vet=off", "-count=1"}, List: list, Out: out, Err: os.Stderr}, out
}

// list returns the runner's list of flaky tests.
func list(t *testing.T, r *Runner) string {
	t.Helper()
	text, err := os.ReadFile(r.List)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// TestFlakyTestsPass needs the failed tests to be run again, each alone, and to be listed with their first failure.
func TestFlakyTestsPass(t *testing.T) {
	t.Parallel()
	r, out := newModule(t, "wobbly", "fine")
	if err := r.Run(t.Context(), "./..."); err != nil {
		t.Fatalf("a run with two flaky tests failed: %v\n%s", err, out)
	}
	for _, want := range []string{
		"FLAKY: made/wobbly TestWobbly ", "FLAKY: made/wobbly TestAlone ", "the first failure", "among others",
	} {
		if !strings.Contains(list(t, r), want) || !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in both the list and the output:\n%s\n%s", want, list(t, r), out)
		}
	}
	if !strings.Contains(out.String(), "ok  \tmade/fine") {
		t.Errorf("no line for a package that passes:\n%s", out)
	}
	for _, bad := range []string{"a log of a test that passes", "what it prints", "=== RUN", "TestSteady"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("%q is in the output:\n%s", bad, out)
		}
	}
}

// TestFinalFailures needs failures that a second run cannot excuse to fail the first, next to a flaky test too.
func TestFinalFailures(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"panics": "panic", "exits": "TestExits did not end", "racy": "WARNING: DATA RACE",
		"after": "without a failed test", "unbuildable": "build failure", "slow": "panic",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, out := newModule(t, name, "third")
			if name == "slow" {
				r.Flags = append(r.Flags, "-timeout=2s")
			}
			err := r.Run(t.Context(), "./...")
			if !errors.Is(err, ErrFailed) || !strings.Contains(out.String(), want) {
				t.Errorf("got %v, want a failure and %q:\n%s", err, want, out)
			}
			if strings.Contains(out.String(), "second run, alone") || list(t, r) != "" {
				t.Errorf("it was run again:\n%s\n%s", out, list(t, r))
			}
		})
	}
}

// TestFailsTwice needs a test that fails alone too to fail the run.
func TestFailsTwice(t *testing.T) {
	t.Parallel()
	r, out := newModule(t, "broken", "third")
	err := r.Run(t.Context(), "./...")
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "TestBroken") {
		t.Errorf("got %v, want a failure of TestBroken", err)
	}
	if strings.Count(out.String(), "it fails always") != 2 || list(t, r) != "" {
		t.Errorf("want two failures in the output, and no list:\n%s\n%s", out, list(t, r))
	}
}

// TestMaxFlaky needs the limit to hold for all runs that share a list.
func TestMaxFlaky(t *testing.T) {
	t.Parallel()
	r, out := newModule(t, "wobbly", "third", "fourth")
	if err := r.Run(t.Context(), "./wobbly", "./third"); err != nil {
		t.Fatalf("three flaky tests are within the limit, but: %v\n%s", err, out)
	}
	before := list(t, r)
	if strings.Count(before, mark) != MaxFlaky {
		t.Fatalf("want %d in the list:\n%s", MaxFlaky, before)
	}
	out.Reset()
	if err := r.Run(t.Context(), "./fourth"); !errors.Is(err, ErrFailed) {
		t.Errorf("got %v for the fourth flaky test, want a failure\n%s", err, out)
	}
	if !strings.Contains(out.String(), "more than 3 tests failed") || list(t, r) != before {
		t.Errorf("want the reason, and no further line in the list:\n%s", out)
	}
}
