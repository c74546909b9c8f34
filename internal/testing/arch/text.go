package arch

import (
	"bytes"
	"fmt"
	"io/fs"
	"regexp"
)

// forbidden are texts that show where something was made rather than what it is. They
// are taken apart here so that this file does not hold them.
var forbidden = []struct {
	what string
	text *regexp.Regexp
}{
	{"a path of one machine", regexp.MustCompile(`(^|[^\w.~})*/-])/` + `(work/|root/|tmp/cli|tmp/tools)`)},
	{"the host of a package registry", regexp.MustCompile(
		`\b(registry\.(npmjs|yarnpkg)|proxy\.golang|sum\.golang|pypi|pythonhosted|crates|repo1?\.maven)` +
			`\.(org|io|com)\b`)},
}

// CheckText looks for texts that must not be committed, in every text file.
func CheckText(tree fs.FS) ([]Finding, error) {
	var findings []Finding
	err := walkFiles(tree, func(name string) error {
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(content, 0) < 0 {
			findings = append(findings, checkLines(name, content)...)
		}
		return nil
	})
	return findings, err
}

// checkLines looks at one file.
func checkLines(name string, content []byte) []Finding {
	var findings []Finding
	number := 0
	for line := range bytes.Lines(content) {
		number++
		for _, f := range forbidden {
			if found := f.text.Find(line); found != nil {
				what := fmt.Sprintf("%s: %q", f.what, bytes.TrimSpace(found))
				findings = append(findings, Finding{Where: fmt.Sprintf("%s:%d", name, number), What: what})
			}
		}
	}
	return findings
}
