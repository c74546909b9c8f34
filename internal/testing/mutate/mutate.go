// Package mutate checks that tests notice faults. It applies small, named faults to the source,
// one at a time, and runs the test that has to fail because of each. The faults are data
// (mutations.yaml); the working tree is never changed: the go command reads the mutated file
// through its -overlay flag.
//
// Other faults are made from the syntax trees of the packages that decide about a session. A sample of them is judged by
// the simulator, and by the unit tests of the mutated package if the simulator does not notice.
package mutate

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Mutation is one fault.
type Mutation struct {
	// Name is unique; Class is one of Classes.
	Name  string `yaml:"name"`
	Class string `yaml:"class"`
	// File is the mutated file, relative to the repository's root. Find is in it exactly
	// once, and Replace stands there afterwards.
	File    string `yaml:"file"`
	Find    string `yaml:"find"`
	Replace string `yaml:"replace"`
	// Package has the test, relative to the root; Test is its name, with subtests after "/".
	Package string `yaml:"package"`
	Test    string `yaml:"test"`
}

// Classes are the kinds of faults, of which each has at least MinOfClass mutations.
var Classes = []string{
	"delivery", "arbitration", "fencing", "authorization", "limits", "redaction", "recovery", "recycle", "login",
}

// The least number of mutations, in all and of each class.
const (
	MinMutations = 60
	MinOfClass   = 8
)

//go:embed mutations.yaml
var mutations []byte

// Load returns the mutations of this repository.
func Load() ([]Mutation, error) { return Parse(mutations) }

// Parse reads mutations and checks everything about them that needs no source.
func Parse(text []byte) ([]Mutation, error) {
	var all []Mutation
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("mutations: %w", err)
	}
	var errs []error
	names, counts := map[string]bool{}, map[string]int{}
	for _, m := range all {
		switch {
		case m.Name == "" || names[m.Name]:
			errs = append(errs, fmt.Errorf("mutation %q: the name is empty or used twice", m.Name))
		case !slices.Contains(Classes, m.Class):
			errs = append(errs, fmt.Errorf("mutation %q: class %q is not one of %v", m.Name, m.Class, Classes))
		case m.File == "" || m.Find == "" || m.Find == m.Replace || m.Package == "" ||
			!strings.HasPrefix(m.Test, "Test"):
			errs = append(errs,
				fmt.Errorf("mutation %q: file, find, another replace, package and test are required", m.Name))
		}
		names[m.Name] = true
		counts[m.Class]++
	}
	for _, class := range Classes {
		if counts[class] < MinOfClass {
			errs = append(errs,
				fmt.Errorf("class %q has %d mutations, fewer than %d", class, counts[class], MinOfClass))
		}
	}
	if len(all) < MinMutations {
		errs = append(errs, fmt.Errorf("there are %d mutations, fewer than %d", len(all), MinMutations))
	}
	return all, errors.Join(errs...)
}

// Apply returns the mutated text of the mutation's file.
func (m Mutation) Apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, fmt.Errorf("mutation %q: %w", m.Name, err)
	}
	if n := bytes.Count(text, []byte(m.Find)); n != 1 {
		return nil, fmt.Errorf("mutation %q: its text is in %s %d times, not once: adapt it to the source", m.Name,
			m.File, n)
	}
	return bytes.Replace(text, []byte(m.Find), []byte(m.Replace), 1), nil
}

// Pattern is the -run pattern for exactly the mutation's test.
func (m Mutation) Pattern() string {
	parts := strings.Split(m.Test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// Verdict is what became of a mutation.
type Verdict string

// The verdicts. Only Killed is good.
const (
	// Killed: the named test failed.
	Killed Verdict = "killed"
	// Survived: the named test passed.
	Survived Verdict = "survived"
	// Unbuilt: the mutated source does not compile, so that nothing was tested.
	Unbuilt Verdict = "does not compile"
	// Absent: the named test did not run.
	Absent Verdict = "no such test"
	// Broken: the named test fails without the mutation, too.
	Broken Verdict = "fails without the mutation"
)

// Result is a mutation's verdict.
type Result struct {
	Mutation
	Verdict Verdict
	Took    time.Duration
	// Output is the end of what the go command printed, where the verdict is not Killed.
	Output string
}
