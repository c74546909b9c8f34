package mutate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// TestTimeout is the time that a test gets to fail; one that hangs has failed.
const TestTimeout = 2 * time.Minute

// buildTimeout is added to it for compiling.
const buildTimeout = 5 * time.Minute

// maxOutput bounds the recorded output of the go command.
const maxOutput = 4 << 10

// Runner runs mutations in a checkout.
type Runner struct {
	// Root is the repository's root, Dir a directory for the mutated files.
	Root, Dir string
	// SimulatorOnly: unit tests do not judge generated mutations.
	SimulatorOnly bool
	// Search is how many further runs the simulator makes with a generated mutation that it comes by and does not notice.
	Search int
	// passes holds the tests that were seen to pass without a mutation.
	passes map[string]Verdict
}

// Run applies one mutation and returns its verdict. The named test is first run without it,
// once for all mutations that name it.
func (r *Runner) Run(ctx context.Context, m Mutation) (Result, error) {
	began := time.Now()
	result := Result{Mutation: m}
	text, err := m.Apply(r.Root)
	if err != nil {
		return result, err
	}
	if r.passes == nil {
		r.passes = map[string]Verdict{}
	}
	key := m.Package + " " + m.Test
	if _, known := r.passes[key]; !known {
		verdict, output, err := r.test(ctx, m.suite(), "")
		if err != nil {
			return result, err
		}
		if verdict == Killed {
			verdict = Broken
		}
		r.passes[key] = verdict
		result.Output = output
	}
	if verdict := r.passes[key]; verdict != Survived {
		result.Verdict, result.Took = verdict, time.Since(began)
		return result, nil
	}
	overlay, err := r.overlay(map[string][]byte{m.File: text})
	if err != nil {
		return result, err
	}
	result.Verdict, result.Output, err = r.test(ctx, m.suite(), overlay)
	result.Took = time.Since(began)
	return result, err
}

// suite is what is run to notice a mutation.
type suite struct {
	// pkg has the tests, relative to the root. test is the one whose failure counts; any if it is empty.
	pkg, test, pattern string
	limit              time.Duration
	args               []string // of the tests
}

func (m Mutation) suite() suite {
	return suite{pkg: m.Package, test: m.Test, pattern: m.Pattern(), limit: TestTimeout}
}

// overlay writes mutated texts of files, and the file that has the go command read them.
func (r *Runner) overlay(texts map[string][]byte) (string, error) {
	dir, err := os.MkdirTemp(r.Dir, "")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		mutated := filepath.Join(dir, fmt.Sprintf("mutated%d.go", len(replace)))
		replace[filepath.Join(r.Root, filepath.FromSlash(file))] = mutated
		if err := os.WriteFile(mutated, text, 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// test runs a suite and says how it went.
func (r *Runner) test(ctx context.Context, s suite, overlay string) (Verdict, string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit+buildTimeout)
	defer cancel()
	args := []string{"test", "-vet=off", "-count=1", "-failfast", "-json", "-timeout", s.limit.String(), "-run", s.pattern}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	args = append(append(args, "./"+s.pkg, "-args"), s.args...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.Root
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", "", fmt.Errorf("the tests of %s: %w", s.pkg, ctx.Err())
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return "", "", err
	}
	verdict, text := judge(out, s.test, err == nil)
	return verdict, text, nil
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// judge reads what go test -json printed of a test, or of all if it is empty.
func judge(out []byte, test string, passed bool) (Verdict, string) {
	var text strings.Builder
	ran, failed, unbuilt := false, false, false
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			text.Write(line) // what the go command says of itself
			continue
		}
		text.WriteString(e.Output)
		ran = ran || e.Action == "run" && (test == "" || e.Test == test)
		failed = failed || e.Action == "fail" && (e.Test == test || e.Test == "")
		unbuilt = unbuilt || e.Action == "build-fail"
	}
	output := text.String()
	if len(output) > maxOutput {
		output = output[len(output)-maxOutput:]
	}
	switch {
	case unbuilt:
		return Unbuilt, output
	case !ran:
		return Absent, output
	case failed && !passed:
		return Killed, output
	}
	return Survived, output
}
