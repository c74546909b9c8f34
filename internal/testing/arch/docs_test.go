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
