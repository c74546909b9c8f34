package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// dockerfile returns what is wrong with a Dockerfile.
func dockerfile(path string) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		say("%v", err)
		return problems
	}
	lint := linter.New(&linter.Config{Warn: func(rule, _, _, text string, at []parser.Range) {
		say("%v: %s: %s", at, rule, text)
	}})
	stages, _, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		say("%v", err)
		return problems
	}
	names := map[string]bool{}
	for i := range stages {
		s := &stages[i]
		if !names[s.BaseName] && (!strings.Contains(s.BaseName, ":") || strings.HasSuffix(s.BaseName, ":latest")) {
			say("the base image %q has no version", s.BaseName)
		}
		names[s.Name] = true
	}
	return append(problems, last(path, &stages[len(stages)-1], names)...)
}

// last returns what is wrong with the stage that becomes the image.
func last(path string, s *instructions.Stage, names map[string]bool) (problems []string) {
	say := func(format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	user, exec, health := "", false, false
	for _, c := range s.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			exec = !c.PrependShell
		case *instructions.HealthCheckCommand:
			health = true
		case *instructions.AddCommand:
			say("ADD does more than COPY, which would do")
		case *instructions.CopyCommand:
			built := len(c.SourcePaths) == 1 && strings.HasPrefix(c.SourcePaths[0], "$TARGETPLATFORM/") // by goreleaser
			if !built && (c.From == "" || !names[c.From]) {
				say("a file is copied from %q, which is no stage: the image has what was built, and no sources", c.From)
			}
		}
	}
	if user == "" || user == "0" || strings.HasPrefix(user, "0:") || strings.HasPrefix(user, "root") {
		say("it runs as root")
	}
	if !exec {
		say("the program does not get signals: its ENTRYPOINT is not of the exec form")
	}
	if !health {
		say("there is no HEALTHCHECK")
	}
	return problems
}
