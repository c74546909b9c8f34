package mutate

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/goccy/go-yaml"
)

// The simulator makes this many runs, of about 20,000 steps, and has this time.
const (
	simulatorRuns  = 370
	simulatorLimit = time.Minute
)

// maxMemory bounds the memory of a test of a generated mutation, in KB: a loop may never end.
const maxMemory = 8 << 20

// simulator is the suite that is to notice a generated mutation; unitTests are for those that it does not.
var simulator = suite{
	pkg: "internal/testing/sim", pattern: "^(TestRuns|TestFound)$", limit: simulatorLimit, memory: maxMemory,
	args: []string{"-runs", strconv.Itoa(simulatorRuns)},
}

// unitTests are all tests of a package. Those of rapid would keep what failed beside the source, for later runs.
func (r *Runner) unitTests(pkg string) suite {
	s := suite{pkg: pkg, pattern: ".", limit: TestTimeout, memory: maxMemory}
	files, _ := filepath.Glob(filepath.Join(r.Root, filepath.FromSlash(pkg), "*_test.go")) // the pattern is right
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // a source of the repository
		if err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`)) {
			s.args = []string{"-rapid.nofailfile"}
		}
	}
	return s
}

// Notice says what noticed a generated mutation.
type Notice string

// The notices.
const (
	BySimulator Notice = "simulator"
	ByUnitTests Notice = "unit tests"
	ByNone      Notice = "survived"
	// ByCompiler: the mutated source is none, so that it does not count.
	ByCompiler Notice = "does not compile"
)

// Finding is what became of a generated mutation.
type Finding struct {
	Generated
	Notice Notice
	Took   time.Duration
	// Reason says why a mutation that survived is no fault of the tests; empty if nobody has found one.
	Reason string
}

// Judge runs the tests that may notice a generated mutation.
func (r *Runner) Judge(ctx context.Context, g Generated) (Finding, error) {
	began := time.Now()
	f := Finding{Generated: g, Notice: ByNone}
	overlay, err := r.overlay(g.File, g.Apply())
	if err != nil {
		return f, err
	}
	for _, by := range []Notice{BySimulator, ByUnitTests} {
		tests := simulator
		if by == ByUnitTests {
			tests = r.unitTests(g.Package)
		}
		verdict, output, err := r.test(ctx, tests, overlay)
		switch {
		case err != nil:
			return f, err
		case verdict == Absent:
			return f, fmt.Errorf("%s: no test ran:\n%s", g.Name, output)
		case verdict == Unbuilt:
			by = ByCompiler
			fallthrough
		case verdict == Killed:
			f.Notice, f.Took = by, time.Since(began)
			return f, nil
		}
	}
	f.Took = time.Since(began)
	return f, nil
}

// JudgeSample judges the first mutations that compile, several at the same time, and calls done after each. Without a
// mutation all tests must pass.
func (r *Runner) JudgeSample(ctx context.Context, all []Generated, n, parallel int, done func(Finding)) ([]Finding, error) {
	for _, tests := range r.suites() {
		if verdict, output, err := r.test(ctx, tests, ""); err != nil || verdict != Survived {
			return nil, errors.Join(err, fmt.Errorf("the tests of %s fail without a mutation:\n%s", tests.pkg, output))
		}
	}
	reasons, err := LoadReasons()
	if err != nil {
		return nil, err
	}
	var found []Finding
	for len(found) < n && len(all) > 0 {
		batch := make([]Finding, min(n-len(found), len(all)))
		errs := make([]error, len(batch))
		var work sync.WaitGroup
		places, said := make(chan struct{}, max(parallel, 1)), sync.Mutex{}
		for i := range batch {
			work.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				batch[i], errs[i] = r.Judge(ctx, all[i])
				batch[i].Reason = reasons[batch[i].Name]
				said.Lock()
				defer said.Unlock()
				done(batch[i])
			})
		}
		work.Wait()
		if err := errors.Join(errs...); err != nil {
			return found, err
		}
		all = all[len(batch):]
		found = append(found, slices.DeleteFunc(batch, func(f Finding) bool { return f.Notice == ByCompiler })...)
	}
	return found, nil
}

// suites are all that may notice a mutation.
func (r *Runner) suites() []suite {
	all := []suite{simulator}
	for _, pkg := range Deciding {
		all = append(all, r.unitTests(pkg))
	}
	return all
}

//go:embed survivors.yaml
var survivors []byte

// LoadReasons returns the reasons of mutations that survive, by their names.
func LoadReasons() (map[string]string, error) {
	var all []struct{ Mutation, Reason string }
	if err := yaml.UnmarshalWithOptions(survivors, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("survivors: %w", err)
	}
	reasons := map[string]string{}
	for _, s := range all {
		if s.Mutation == "" || s.Reason == "" || reasons[s.Mutation] != "" {
			return nil, fmt.Errorf("survivors: %q needs a name of its own and a reason", s.Mutation)
		}
		reasons[s.Mutation] = s.Reason
	}
	return reasons, nil
}
