package arch

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree builds a module from files of the form name → content.
func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{"go.mod": {Data: []byte("module example.com/m\n\ngo 1.26\n")}}
	for name, content := range files {
		out[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return out
}

// source is a Go file that imports the given packages.
func source(imports ...string) string {
	text := "package p\n"
	for _, i := range imports {
		text += "import _ \"" + i + "\"\n"
	}
	return text
}

// lines gives the findings as text.
func lines(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, f.String())
	}
	return out
}

func TestCheckImports(t *testing.T) {
	t.Parallel()
	code := tree(map[string]string{
		"bridge/a.go":          source("os", "example.com/m/bridge/wire"),
		"bridge/a_test.go":     source("os/exec"),
		"bridge/wire/w.go":     source("example.com/rpc/status"),
		"bridge/testdata/t.go": source("os/exec"),
		"bridgehead/b.go":      source("os/exec"),
		"leaf/l.go":            source("strings"),
		"nested/go.mod":        "module example.com/nested\n",
		"nested/n.go":          source("os/exec"),
	})
	tests := []struct {
		name, rules string
		want        []string
	}{
		{name: "kept", rules: "bridge/... never os/exec # r"},
		{name: "broken", rules: "bridge/... never example.com/rpc/... # why not", want: []string{
			"bridge/wire/w.go:2: bridge/wire must not import example.com/rpc/status (imports.txt line 1: why not)",
		}},
		{name: "exact package only", rules: "bridge never example.com/rpc/... # r"},
		{name: "excepted package", rules: "... except bridge/wire never example.com/rpc/... # r"},
		{name: "excepted import", rules: "bridge/... never example.com/... except example.com/rpc/status # r"},
		{name: "own package by short name", rules: "# head\n\nbridge never bridge/wire # r", want: []string{
			"bridge/a.go:3: bridge must not import bridge/wire (imports.txt line 3: r)",
		}},
		{name: "leaf", rules: "leaf within # r"},
		{name: "leaf no more", rules: "bridge within # r", want: []string{
			"bridge/a.go:3: bridge must not import bridge/wire (imports.txt line 1: r)",
		}},
		{name: "within leaves other modules alone", rules: "bridge/... within bridge/... # r"},
		{name: "whole module", rules: "... never os/exec # r", want: []string{
			"bridgehead/b.go:2: bridgehead must not import os/exec (imports.txt line 1: r)",
		}},
		{name: "dead row", rules: "gone/... never os # r", want: []string{
			`imports.txt:1: no package matches "gone/..."`,
		}},
		{name: "dead package exception", rules: "bridge/... except bridge/gone never unsafe # r", want: []string{
			`imports.txt:1: the exception of package "bridge/gone" excuses nothing`,
		}},
		{name: "dead import exception", rules: "leaf never os/... except os/signal # r", want: []string{
			`imports.txt:1: the exception of import "os/signal" excuses nothing`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := CheckImports(code, tt.rules)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(lines(got), tt.want) {
				t.Errorf("got %q, want %q", lines(got), tt.want)
			}
		})
	}
}

func TestCheckImportsRefusesBadRows(t *testing.T) {
	t.Parallel()
	for _, rules := range []string{
		"a never b", "a never # r", "never b # r", "a b # r",
		"except a never b # r", "a within b except c # r",
	} {
		if _, err := CheckImports(tree(nil), rules); err == nil || !strings.Contains(err.Error(), "line 1: ") {
			t.Errorf("%q gave %v, want an error with its line", rules, err)
		}
	}
	if _, err := CheckImports(tree(map[string]string{"a/a.go": "pakage a"}), ""); err == nil {
		t.Error("a file that does not parse was accepted")
	}
	if _, err := CheckImports(fstest.MapFS{"go.mod": {Data: []byte("go 1.26\n")}}, ""); err == nil {
		t.Error("a module without a name was accepted")
	}
}

func TestCheckPaths(t *testing.T) {
	t.Parallel()
	got, err := CheckPaths(tree(map[string]string{
		"a/b/c.go":  "package b",
		"docs/d.md": "`a/b/c.go`, `b/c.go`, `c.go` and `x.go`; `a/b` too.\n\nBut `a/c.go`, `ab/c.go`.\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`docs/d.md:3: "a/c.go" is not there`, `docs/d.md:3: "ab/c.go" is not there`}
	if !slices.Equal(lines(got), want) {
		t.Errorf("got %q, want %q", lines(got), want)
	}
}

func TestCheckTestsAndProof(t *testing.T) {
	t.Parallel()
	code := tree(map[string]string{
		"a/one_test.go": "package a\n\nfunc TestOne(t *testing.T) {}\n\nfunc FuzzTwo(f *testing.F) {}\n",
		"Makefile":      "check all: ## all\n\ttrue\n",
		"doc.md": "# Here\n\n| what | by |\n|---|---|\n| a | `TestOne`, `make all CHECK=1` |\n| b | `TestGone` |\n| " +
			"c | by looking |\n\n# There\n\n| x | y |\n\n`FuzzTwo`, `make gone`, `Testing`\n",
	})
	got, err := CheckTests(code)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{`doc.md:6: "TestGone" is not there`,
		`doc.md:13: "make gone" is not there`}; !slices.Equal(lines(got), want) {
		t.Errorf("got %q, want %q", lines(got), want)
	}
	for heading, want := range map[string][]string{
		"Here": {"doc.md:7: no test is named"}, "Nowhere": {`doc.md: there is no table below "Nowhere"`},
	} {
		got, err := CheckProof(code, "doc.md", heading)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(lines(got), want) {
			t.Errorf("%s: got %q, want %q", heading, lines(got), want)
		}
	}
}
