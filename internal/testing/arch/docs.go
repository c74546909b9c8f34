package arch

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// code is what a document shows as code within a line.
var code = regexp.MustCompile("`([^`]+)`")

// goFile is code that names a Go file by a paths path.
var goFile = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+\.go$`)

// CheckPaths looks for Go files that documents name by a path, from the root, from the
// document or the end of one, and that are not there.
func CheckPaths(tree fs.FS) ([]Finding, error) {
	var files []string
	var documents []string
	err := walkFiles(tree, func(name string) error {
		switch path.Ext(name) {
		case ".go":
			files = append(files, "/"+name)
		case ".md":
			documents = append(documents, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return notThere(tree, documents, func(document, named string) bool {
		beside := "/" + path.Join(path.Dir(document), named)
		return goFile.MatchString(named) && !endsAny(files, "/"+named) && !slices.Contains(files, beside)
	})
}

// notThere finds what documents name as code and is missing.
func notThere(tree fs.FS, documents []string, missing func(document, named string) bool) ([]Finding, error) {
	var findings []Finding
	for _, document := range documents {
		err := eachLine(tree, document, func(number int, line string) {
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				if missing(document, m[1]) {
					findings = append(findings,
						Finding{fmt.Sprintf("%s:%d", document, number), fmt.Sprintf("%q is not there", m[1])})
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return findings, nil
}

func endsAny(files []string, end string) bool {
	return slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, end) })
}

// CheckFileTable holds a document's table of a folder's Go files to the folder. The first
// column of the table below the heading has names, or patterns of path.Match; each must
// match a file, and each file one of them; tests only where they are what the folder is for.
// Patterns without ".go" stand for names with it.
func CheckFileTable(tree fs.FS, document, heading, folder string, tests bool) ([]Finding, error) {
	patterns := map[string]bool{} // whether something matched
	within := false
	err := eachLine(tree, document, func(_ int, line string) {
		if strings.HasPrefix(line, "#") {
			within = strings.TrimLeft(line, "# ") == heading
		}
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "|"), "|"); ok && within &&
			strings.HasPrefix(line, "|") {
			for _, m := range code.FindAllStringSubmatch(first, -1) {
				patterns[m[1]] = false
			}
		}
	})
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(tree, folder)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, e := range entries {
		if path.Ext(e.Name()) != ".go" {
			continue
		}
		found, err := mark(patterns, e.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", document, err)
		}
		if !found && (tests || !strings.HasSuffix(e.Name(), "_test.go")) {
			findings = append(findings, Finding{path.Join(folder, e.Name()), "no row of " + document + " is about it"})
		}
	}
	for p, matched := range patterns {
		if !matched {
			findings = append(findings, Finding{document, fmt.Sprintf("%q matches no file of %s", p, folder)})
		}
	}
	sortFindings(findings)
	return findings, nil
}

// mark marks the patterns that a file's name matches.
func mark(patterns map[string]bool, name string) (found bool, err error) {
	for p := range patterns {
		full := p
		if path.Ext(p) != ".go" {
			full += ".go"
		}
		ok, err := path.Match(full, name)
		if err != nil {
			return false, fmt.Errorf("%q: %w", p, err)
		}
		if ok {
			patterns[p], found = true, true
		}
	}
	return found, nil
}

// eachLine calls visit with each line of a file, from 1.
func eachLine(tree fs.FS, name string, visit func(number int, line string)) error {
	content, err := fs.ReadFile(tree, name)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		visit(number, lines.Text())
	}
	return lines.Err()
}
