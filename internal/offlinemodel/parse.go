package offlinemodel

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

//go:embed demo.yaml
var demoScript []byte

// Default returns the built-in demo script: a question about the weather that
// takes a tool call, a shell command that needs a permission, and an echo for
// everything else.
func Default() *Script {
	script, err := Parse("demo.yaml", demoScript)
	if err != nil {
		// The script is part of the program and a test parses it.
		panic(err)
	}
	return script
}

// Load reads a script from a file.
func Load(path string) (*Script, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read offline model script: %w", err)
	}
	return Parse(filepath.Base(path), text)
}

// Parse reads a script. Unknown keys are errors, and errors name the line; name
// stands for the file in them.
func Parse(name string, text []byte) (*Script, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, positioned(name, err)
	}
	if err := checkDurations(name, file); err != nil {
		return nil, err
	}
	script := &Script{}
	if err := yaml.UnmarshalWithOptions(text, script, yaml.Strict()); err != nil {
		return nil, positioned(name, err)
	}
	if err := script.validate(); err != nil {
		return nil, locate(name, file, err)
	}
	return script, nil
}

// positioned rewrites an error of the YAML library as name:line:column: text.
func positioned(name string, err error) error {
	var detailed yaml.Error
	if !errors.As(err, &detailed) || detailed.GetToken() == nil || detailed.GetToken().Position == nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	position := detailed.GetToken().Position
	message := detailed.GetMessage()
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) {
		message = fmt.Sprintf("unknown key %q", detailed.GetToken().Value)
	}
	return fmt.Errorf("%s:%d:%d: %s", name, position.Line, position.Column, message)
}

// invalid is a complaint about one place in a script.
type invalid struct {
	// path is where, in the library's notation: $.rules[2].reply[0]
	path string
	// problem is what.
	problem string
}

func (e *invalid) Error() string {
	return strings.TrimPrefix(strings.TrimPrefix(e.path, "$"), ".") + ": " + e.problem
}

// locate adds the line to a complaint about a parsed script.
func locate(name string, file *ast.File, err error) error {
	var complaint *invalid
	if errors.As(err, &complaint) {
		if path, pathErr := yaml.PathString(complaint.path); pathErr == nil {
			if node, nodeErr := path.FilterFile(file); nodeErr == nil && node != nil {
				return fmt.Errorf("%s:%d: %w", name, firstLine(node), err)
			}
		}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// firstLine is the line on which a node begins. The token of a mapping is a
// colon or a brace, not its first key.
func firstLine(node ast.Node) int {
	line := node.GetToken().Position.Line
	if mapping, ok := node.(*ast.MappingNode); ok {
		for _, value := range mapping.Values {
			line = min(line, value.Key.GetToken().Position.Line)
		}
	}
	return line
}

// durationCheck finds what should be a duration and is not. The YAML library
// would take a bare number for nanoseconds and report the rest without a line.
type durationCheck struct {
	problem *ast.MappingValueNode
}

func checkDurations(name string, file *ast.File) error {
	check := &durationCheck{}
	for _, document := range file.Docs {
		ast.Walk(check, document)
	}
	if check.problem == nil {
		return nil
	}
	found := check.problem.Value.GetToken()
	return fmt.Errorf("%s:%d:%d: %q is not a duration such as 500ms or 2s",
		name, found.Position.Line, found.Position.Column, found.Value)
}

// Visit implements [ast.Visitor].
func (c *durationCheck) Visit(node ast.Node) ast.Visitor {
	entry, ok := node.(*ast.MappingValueNode)
	if !ok {
		return c
	}
	switch entry.Key.String() {
	case "arguments", "extra", "header", "headers":
		return nil // free-form
	case "delay", "wait", "retry_after":
		if _, err := time.ParseDuration(entry.Value.GetToken().Value); err != nil && c.problem == nil {
			c.problem = entry
		}
	}
	return c
}
