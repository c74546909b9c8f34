package mutate

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/mutate/mutant"
)

// The simulator makes this many runs, of about 20,000 steps, and has this time.
const (
	simulatorRuns  = 370
	simulatorLimit = time.Minute
	searchLimit    = 5 * time.Minute
)

// maxMemory bounds the memory of a test of a generated mutation, in KB: a loop may never end.
const maxMemory = 8 << 20

// simulator is the suite that is to notice a generated mutation; unitTests are for those that it does not.
var simulator = suite{
	pkg: "internal/testing/sim", pattern: "^(TestRuns|TestFound)$", limit: simulatorLimit,
	args: []string{"-runs", strconv.Itoa(simulatorRuns)},
}

// unitTests are all tests of a package. Those of rapid would keep what failed beside the source, for later runs.
func (r *Runner) unitTests(pkg string) suite {
	s := suite{pkg: pkg, pattern: ".", limit: TestTimeout}
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
)

// Finding is what became of a generated mutation.
type Finding struct {
	Generated
	Notice Notice
	// Simulated: the simulator comes by it.
	Simulated bool
	// Script is a further run of the simulator that notices it, if one was searched for.
	Script string
	Took   time.Duration
	// Reason says why a mutation that survived is no fault of the tests; empty if nobody has found one.
	Reason string
}

// Woven are the tests that may notice generated mutations, built with all of them: an environment variable says which one
// takes effect.
type Woven struct {
	r       *Runner
	numbers map[string]int    // of the mutations, by their names
	tests   map[string]string // the programs, by package
	// reached has the mutations that the tests of a package come by.
	reached map[string]map[int]bool
}

// Weave builds the tests of the simulator and those of the mutated packages. Without a mutation all must pass.
func (r *Runner) Weave(ctx context.Context, all []Generated) (*Woven, error) {
	w := &Woven{r: r, numbers: map[string]int{}, tests: map[string]string{}, reached: map[string]map[int]bool{}}
	byFile := map[string][]Generated{}
	packages := map[string]bool{}
	for i, g := range all {
		w.numbers[g.Name] = i + 1
		byFile[g.File] = append(byFile[g.File], g)
		packages[g.Package] = true
	}
	if len(all) >= mutant.Max {
		return nil, fmt.Errorf("there are %d mutations: mutant.Max is too small", len(all))
	}
	module, err := r.module(ctx)
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{mutantPackage + "/mutant.go": mutantSource}
	for file, some := range byFile {
		source, err := os.ReadFile(filepath.Join(r.Root, filepath.FromSlash(file))) //nolint:gosec // a source of the repository
		if err != nil {
			return nil, err
		}
		if texts[file], err = weave(source, module, some, w.numbers); err != nil {
			return nil, err
		}
	}
	overlay, err := r.overlay(texts)
	if err != nil {
		return nil, err
	}
	suites := []suite{simulator}
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		if r.SimulatorOnly {
			break
		}
		suites = append(suites, r.unitTests(pkg))
	}
	for i, s := range suites {
		name := filepath.Join(r.Dir, fmt.Sprintf("woven%d.test", i))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", name, "./"+s.pkg) //nolint:gosec // ours
		cmd.Dir = r.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("the tests of %s with mutations: %w\n%s", s.pkg, err, out)
		}
		w.tests[s.pkg] = name
		if err := w.survey(ctx, s); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// module is the name of the Go module.
func (r *Runner) module(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m")
	cmd.Dir = r.Root
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// survey runs tests without a mutation, and notes which mutations they come by.
func (w *Woven) survey(ctx context.Context, s suite) error {
	list := w.tests[s.pkg] + ".reached"
	passed, out, err := w.run(ctx, s, mutant.Reached+"="+list)
	if err == nil && (!passed || bytes.Contains(out, []byte("no tests to run"))) {
		err = fmt.Errorf("the tests of %s fail without a mutation:\n%s", s.pkg, out)
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile(list) //nolint:gosec // a file of ours
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.reached[s.pkg] = map[int]bool{}
	for line := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			return err
		}
		w.reached[s.pkg][n] = true
	}
	return nil
}

// run runs the tests of a package, and reports whether they pass.
func (w *Woven) run(ctx context.Context, s suite, environment string) (passed bool, out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit+buildTimeout)
	defer cancel()
	args := append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, maxMemory), "sh", w.tests[s.pkg], "-test.failfast",
		"-test.timeout=" + s.limit.String(), "-test.run=" + s.pattern}, s.args...)
	cmd := exec.CommandContext(ctx, "sh", args...) //nolint:gosec // a program of ours
	cmd.Dir = filepath.Join(w.r.Root, filepath.FromSlash(s.pkg))
	cmd.Env = append(os.Environ(), environment)
	cmd.WaitDelay = 10 * time.Second
	out, err = cmd.CombinedOutput()
	if ctx.Err() != nil {
		return false, nil, fmt.Errorf("the tests of %s: %w", s.pkg, ctx.Err())
	}
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return false, out, nil
	}
	return err == nil, out, err
}

// Judge runs the tests that may notice a mutation.
func (w *Woven) Judge(ctx context.Context, g Generated) (Finding, error) {
	began := time.Now()
	f := Finding{Generated: g, Notice: ByNone}
	n := w.numbers[g.Name]
	for _, by := range []Notice{BySimulator, ByUnitTests} {
		tests := simulator
		if by == ByUnitTests {
			tests = w.r.unitTests(g.Package)
		}
		reached := w.reached[tests.pkg][n]
		f.Simulated = f.Simulated || by == BySimulator && reached
		if !reached {
			continue
		}
		passed, _, err := w.run(ctx, tests, fmt.Sprint(mutant.Active, "=", n))
		if err != nil {
			return f, err
		}
		if !passed {
			f.Notice = by
			break
		}
		if by == BySimulator && w.r.Search > 0 {
			if f.Script, err = w.search(ctx, n); err != nil {
				return f, err
			}
		}
	}
	f.Took = time.Since(began)
	return f, nil
}

// wrongRun is what the simulator says of a wrong run.
var wrongRun = regexp.MustCompile(`(?m)^short: (.*)$`)

// search makes further runs of the simulator with a mutation, and returns the first wrong one in its short form.
func (w *Woven) search(ctx context.Context, n int) (script string, err error) {
	s := simulator
	s.pattern, s.limit = "^TestRuns$", searchLimit
	s.args = []string{"-first", strconv.Itoa(simulatorRuns + 1), "-runs", strconv.Itoa(w.r.Search)}
	passed, out, err := w.run(ctx, s, fmt.Sprint(mutant.Active, "=", n))
	if found := wrongRun.FindSubmatch(out); err == nil && !passed && found != nil {
		script = string(found[1])
	}
	return script, err
}

// JudgeAll judges mutations, several at the same time, and calls done after each.
func (w *Woven) JudgeAll(ctx context.Context, all []Generated, parallel int, done func(Finding)) ([]Finding, error) {
	reasons, err := LoadReasons()
	if err != nil {
		return nil, err
	}
	found, errs := make([]Finding, len(all)), make([]error, len(all))
	var work sync.WaitGroup
	places, said := make(chan struct{}, max(parallel, 1)), sync.Mutex{}
	for i, g := range all {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			found[i], errs[i] = w.Judge(ctx, g)
			found[i].Reason = reasons[g.Name]
			said.Lock()
			defer said.Unlock()
			done(found[i])
		})
	}
	work.Wait()
	return found, errors.Join(errs...)
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
