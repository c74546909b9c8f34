package retest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Actions of the go command's test events.
const (
	actionRun    = "run"
	actionPass   = "pass"
	actionSkip   = "skip"
	actionFail   = "fail"
	actionOutput = "output"
	// actionBuildOutput has a compiler's messages.
	actionBuildOutput = "build-output"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// failure is a failed test with its output.
type failure struct {
	pkg, test string
	output    []string
}

// final matches the output of failures that are never repeated.
var final = regexp.MustCompile(`^(WARNING: DATA RACE|panic: |fatal error: )`)

// testLine matches what package testing prints about a test: its progress, its result, and its indented log.
var testLine = regexp.MustCompile(`^(=== |--- |[ \t])`)

// packageResult has a package's tests and their output.
type packageResult struct {
	name string
	// result is the action that ended the package, empty until then.
	result string
	// started lists the tests in the order of their start; results has the action that ended each.
	started []string
	results map[string]string
	// output holds the events with output in their order.
	output []event
	// reason says why the failures are final, if they are.
	reason string
}

// results has the packages of a run.
type results struct {
	packages []*packageResult
	byName   map[string]*packageResult
}

// readResults reads the events of go test -json, and prints each package's result as go test does.
func readResults(in io.Reader, out io.Writer) (*results, error) {
	all := &results{byName: map[string]*packageResult{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if jsonErr := json.Unmarshal(line, &e); jsonErr != nil {
				// Messages of the go command itself are no events.
				_, _ = out.Write(line)
			} else {
				all.add(e, out)
			}
		}
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, fmt.Errorf("read the test events: %w", err)
		}
	}
}

// add takes in an event.
func (r *results) add(e event, out io.Writer) {
	if e.Action == actionBuildOutput {
		_, _ = io.WriteString(out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.byName[e.Package]
	if p == nil {
		p = &packageResult{name: e.Package, results: map[string]string{}}
		r.byName[e.Package] = p
		r.packages = append(r.packages, p)
	}
	p.add(e)
	if p.result != "" {
		p.print(out)
		p.output = slices.DeleteFunc(p.output, func(e event) bool { return !p.failedOutput(e) })
	}
}

// add takes in an event of the package.
func (p *packageResult) add(e event) {
	switch e.Action {
	case actionRun:
		p.started = append(p.started, e.Test)
	case actionOutput:
		p.output = append(p.output, e)
		if found := final.FindString(e.Output); found != "" && p.reason == "" {
			p.reason = strings.TrimRight(found, ": ")
		}
	case actionPass, actionSkip, actionFail:
		if e.Test != "" {
			p.results[e.Test] = e.Action
			return
		}
		p.result = e.Action
		if e.FailedBuild != "" {
			p.reason = "build failure"
		}
	}
}

// failedOutput reports whether an output event belongs to a test that did not pass.
func (p *packageResult) failedOutput(e event) bool {
	result := p.results[e.Test]
	return e.Test != "" && result != actionPass && result != actionSkip
}

// print writes the package's line, and for a failed package the output of the failed tests and of the programs that
// the tests ran.
func (p *packageResult) print(out io.Writer) {
	for _, e := range p.output {
		text := e.Output
		switch {
		case strings.HasPrefix(text, "=== "):
		case p.result != actionFail && (e.Test != "" || text == "PASS\n" || testLine.MatchString(text)):
		case p.result == actionFail && e.Test != "" && !p.failedOutput(e) && testLine.MatchString(text):
		default:
			_, _ = io.WriteString(out, text)
		}
	}
}

// repeatable returns the failed tests, or the reason why they are final.
func (r *results) repeatable() ([]failure, string) {
	var failed []failure
	for _, p := range r.packages {
		if p.result == actionPass || p.result == actionSkip {
			continue
		}
		tests, reason := p.repeatable()
		if reason != "" {
			return nil, p.name + ": " + reason
		}
		failed = append(failed, tests...)
	}
	if len(failed) == 0 {
		return nil, "the go command failed without a failed test"
	}
	return failed, ""
}

// repeatable returns the package's failed tests, or the reason why they are final.
func (p *packageResult) repeatable() ([]failure, string) {
	if p.reason != "" {
		return nil, p.reason
	}
	if p.result == "" {
		return nil, "the package did not end"
	}
	var failed []failure
	for _, test := range p.started {
		switch p.results[test] {
		case "":
			return nil, test + " did not end"
		case actionFail:
			if !strings.Contains(test, "/") {
				failed = append(failed, failure{pkg: p.name, test: test, output: p.outputOf(test)})
			}
		}
	}
	if len(failed) == 0 {
		return nil, "the package failed without a failed test"
	}
	return failed, ""
}

// outputOf returns the lines of a test and of its failed subtests.
func (p *packageResult) outputOf(test string) []string {
	var lines []string
	for _, e := range p.output {
		top, _, _ := strings.Cut(e.Test, "/")
		if top == test && p.failedOutput(e) && !strings.HasPrefix(e.Output, "=== ") {
			lines = append(lines, e.Output)
		}
	}
	return lines
}

// passed reports whether a test ran and passed.
func (r *results) passed(pkg, test string) bool {
	p := r.byName[pkg]
	return p != nil && p.results[test] == actionPass
}
