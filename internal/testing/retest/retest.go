// Package retest runs go test and repeats failed tests once, alone. A test that fails among others and passes alone
// is flaky: the run passes, and a list names the test and shows its first failure.
//
// A data race, a panic, a build failure, a timeout and a test that ends its process are final. They are never
// repeated, because a second run would prove nothing about them.
package retest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// MaxFlaky is the highest number of flaky tests with which a step passes.
const MaxFlaky = 3

// mark begins the line that names a flaky test.
const mark = "FLAKY: "

// maxShown bounds the lines of a first failure that the list has.
const maxShown = 60

// ErrFailed reports that tests failed, or that more than MaxFlaky were flaky.
var ErrFailed = errors.New("tests failed")

// Runner runs tests. Its methods are not safe for concurrent use.
type Runner struct {
	// Dir is the folder in which the go command runs.
	Dir string
	// Flags are the go command's flags for every run, such as -race.
	Flags []string
	// List is the file to which flaky tests are appended. The tests that it has already count against MaxFlaky, so
	// that several runs can share the limit.
	List string
	// Out receives the results and Err the go command's messages, at the same time.
	Out, Err io.Writer
}

// Run tests the packages and repeats failed tests once. It returns ErrFailed if a test failed that is not flaky.
func (r *Runner) Run(ctx context.Context, packages ...string) error {
	first, err := r.test(ctx, packages)
	if err == nil {
		return nil
	}
	failed, reason := first.repeatable()
	known, listErr := r.known()
	if listErr != nil {
		return listErr
	}
	if reason == "" && known+len(failed) > MaxFlaky {
		reason = fmt.Sprintf("more than %d tests failed", MaxFlaky)
	}
	if reason != "" {
		_, _ = fmt.Fprintf(r.Out, "no second run: %s\n", reason)
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	if err := r.repeat(ctx, failed); err != nil {
		return err
	}
	return r.record(failed)
}

// repeat runs each failed test alone and returns an error if one fails again.
func (r *Runner) repeat(ctx context.Context, failed []failure) error {
	var again error
	for _, f := range failed {
		_, _ = fmt.Fprintf(r.Out, "second run, alone: %s %s\n", f.pkg, f.test)
		second, err := r.test(ctx, []string{
			"-count=1", "-p=1", "-parallel=1", "-run", "^" + regexp.QuoteMeta(f.test) + "$", f.pkg,
		})
		if err == nil && !second.passed(f.pkg, f.test) {
			err = errors.New("the second run did not run it")
		}
		if err != nil {
			again = errors.Join(again, fmt.Errorf("%w: %s %s: %w", ErrFailed, f.pkg, f.test, err))
		}
	}
	return again
}

// test runs the go command, prints its results and returns them. The error is the command's.
func (r *Runner) test(ctx context.Context, args []string) (*results, error) {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-json"}, r.Flags...), args...)...)
	cmd.Dir, cmd.Stderr = r.Dir, r.Err
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	read, err := readResults(out, r.Out)
	if err != nil {
		_ = cmd.Cancel()
	}
	return read, errors.Join(err, cmd.Wait())
}

// known counts the flaky tests in the list.
func (r *Runner) known() (int, error) {
	text, err := os.ReadFile(r.List)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return strings.Count("\n"+string(text), "\n"+mark), err
}

// record prints the flaky tests and appends them to the list.
func (r *Runner) record(flaky []failure) error {
	var text strings.Builder
	for _, f := range flaky {
		fmt.Fprintf(&text, "%s%s %s failed among others and passed alone. Its first failure:\n", mark, f.pkg, f.test)
		lines := f.output
		if len(lines) > maxShown {
			lines = append(lines[:maxShown:maxShown], fmt.Sprintf("… %d more lines\n", len(lines)-maxShown))
		}
		for _, line := range lines {
			text.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	_, _ = io.WriteString(r.Out, text.String())
	if err := os.MkdirAll(filepath.Dir(r.List), 0o755); err != nil {
		return err
	}
	list, err := os.OpenFile(r.List, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = list.WriteString(text.String())
	return errors.Join(err, list.Close())
}
