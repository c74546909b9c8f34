package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options choose what a Suite runs.
type Options struct {
	// Root is the folder of the repository.
	Root string
	// Languages and Transports of the matrix; default: all. A language whose driver is not built is left out.
	Languages, Transports []string
	// CLIs are paths of the CLI by version. Without one, only cases with wire scripts run.
	CLIs []CLI
	// Cases are patterns of names, as in "tools/*"; default: all.
	Cases []string
	// Parallel is how many drivers run at once; default 2.
	Parallel int
	// Out receives a line for each case that does not pass.
	Out io.Writer
}

// CLI is a version of the CLI.
type CLI struct{ Version, Path string }

// Verdict is how a case ended for a language.
type Verdict struct {
	Case, Language, Transport, CLI string
	// Err is the difference from what the case expects; nil if there is none.
	Err error
	// Known is the reason of the list of known failures.
	Known   string
	Elapsed time.Duration
}

// Where names the run.
func (v Verdict) Where() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", v.Case, v.Language, v.Transport, v.CLI))
}

// Passed reports whether the case ended as it should: a known failure has to fail, unless it fails only sometimes.
func (v Verdict) Passed() bool {
	return (v.Err == nil) == (v.Known == "") || strings.HasPrefix(v.Known, "sometimes")
}

// Suite is a loaded suite.
type Suite struct {
	options Options
	cases   []*Case
	known   []known
	drivers map[string]func(environment *Environment) *driver

	mu       sync.Mutex
	verdicts []Verdict
}

// NewSuite loads the cases.
func NewSuite(o Options) (*Suite, error) {
	folder := filepath.Join(o.Root, "e2e", "conformance")
	all, err := Load(filepath.Join(folder, "cases"))
	if err != nil {
		return nil, err
	}
	s := &Suite{options: o, drivers: map[string]func(*Environment) *driver{}}
	for _, c := range all {
		if len(o.Cases) == 0 || slices.ContainsFunc(o.Cases, func(p string) bool {
			ok, err := path.Match(p, c.Name)
			return err == nil && ok
		}) {
			s.cases = append(s.cases, c)
		}
	}
	if len(s.cases) == 0 {
		return nil, fmt.Errorf("no case has a name like %q", o.Cases)
	}
	if s.known, err = loadKnown(filepath.Join(folder, "known-failures.txt")); err != nil {
		return nil, err
	}
	for _, name := range o.Languages {
		l, ok := languages[name]
		if !ok {
			return nil, fmt.Errorf("there is no driver in %q", name)
		}
		command, err := l.command(o.Root)
		if err != nil {
			return nil, fmt.Errorf("the driver in %s is not built: %w", name, err)
		}
		s.drivers[name] = func(e *Environment) *driver {
			certificates := "NODE_EXTRA_CA_CERTS=" + e.CertificateFile()
			return &driver{language: name, command: command, env: []string{certificates}}
		}
	}
	return s, nil
}

// language is how the driver of a library is started.
type language struct {
	program string
	// files are the program's arguments that are files of the repository; the last must exist for the driver to be
	// built.
	files []string
}

const drivers = "e2e/conformance/drivers/"

var languages = map[string]language{
	"go":         {files: []string{"bin/conformance-go"}},
	"typescript": {program: "node", files: []string{drivers + "typescript/build/driver.js"}},
	"python":     {files: []string{drivers + "python/.cache/venv/bin/python", drivers + "python/driver.py"}},
	"rust":       {files: []string{"bin/conformance-rust"}},
	"java":       {files: []string{drivers + "java/target/run"}},
}

// Languages are all languages, in the order of the table.
var Languages = []string{"go", "typescript", "python", "rust", "java"}

// Built are the languages whose drivers are built.
func Built(root string) []string {
	return slices.DeleteFunc(slices.Clone(Languages), func(name string) bool {
		_, err := languages[name].command(root)
		return err != nil
	})
}

func (l language) command(root string) ([]string, error) {
	var command []string
	if l.program != "" {
		command = append(command, l.program)
	}
	for _, file := range l.files {
		file = filepath.Join(root, file)
		if _, err := os.Stat(file); err != nil {
			return nil, err
		}
		command = append(command, file)
	}
	return command, nil
}

// Run runs the suite.
func (s *Suite) Run(ctx context.Context) ([]Verdict, error) {
	clis := s.options.CLIs
	if len(clis) == 0 || !slices.ContainsFunc(s.cases, (*Case).Real) {
		clis = append(clis[:len(clis):len(clis)], CLI{})[:1]
		clis[0].Path = ""
	}
	for i, cli := range clis {
		if err := s.runWith(ctx, cli, i == 0); err != nil {
			return nil, err
		}
	}
	return s.verdicts, nil
}

// runWith runs the cases of one real server, and, if first is set, the cases with wire scripts.
func (s *Suite) runWith(ctx context.Context, cli CLI, first bool) (err error) {
	e, err := NewEnvironment(ctx, filepath.Join(s.options.Root, "bin", "copilot-grpc"), cli.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	slots := make(chan struct{}, max(s.options.Parallel, 1))
	var running sync.WaitGroup
	for _, language := range s.options.Languages {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			d := s.drivers[language](e)
			for _, transport := range s.options.Transports {
				s.runCases(ctx, e, d, language, transport, cli, first)
			}
			_ = d.stop(false)
		})
	}
	running.Wait()
	return ctx.Err()
}

func (s *Suite) runCases(
	ctx context.Context, e *Environment, d *driver, language, transport string, cli CLI, first bool,
) {
	for _, c := range s.cases {
		switch {
		case ctx.Err() != nil:
			return
		case c.Real() && e.real == nil, !c.Real() && !first:
			continue
		case transport == Web && !(c.Web && language == "typescript"):
			continue
		}
		s.add(s.runCase(ctx, e, d, c, transport, cli))
	}
}

func (s *Suite) runCase(ctx context.Context, e *Environment, d *driver, c *Case, transport string, cli CLI) Verdict {
	begin := time.Now()
	v := Verdict{Case: c.Name, Language: d.language, Transport: transport}
	if c.Real() {
		v.CLI = cli.Version
	}
	v.Err = e.Run(ctx, d, c, transport)
	if c.Foreign != "" { // what is left of its connections belongs to this case
		v.Err = errors.Join(v.Err, d.stop(false))
	}
	v.Elapsed = time.Since(begin)
	for _, k := range s.known {
		if k.matches(c.Name, v.Language, v.CLI) {
			v.Known = k.reason
		}
	}
	return v
}

func (s *Suite) add(v Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts = append(s.verdicts, v)
	switch {
	case v.Passed():
	case v.Err == nil:
		fmt.Fprintf(s.options.Out, "PASSED but is a known failure: %s\n", v.Where())
	default:
		fmt.Fprintf(s.options.Out, "FAILED %s: %v\n", v.Where(), v.Err)
	}
}
