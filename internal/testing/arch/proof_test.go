package arch

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	// testName is code that names a test, a fuzz test or a benchmark of Go's.
	testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	// testFunc is where one is declared.
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	// target is code that names a target of the Makefile, perhaps with variables, and where some are declared.
	target     = regexp.MustCompile(`^(make [\w-]+)(?: [A-Z]+=.+)?$`)
	targetRule = regexp.MustCompile(`(?m)^([\w-][\w -]*):`)
)

// CheckTests looks for tests and targets of the Makefile that documents name and that do not exist. Documents that name
// tests of other projects are excepted.
func CheckTests(tree fs.FS, except ...string) ([]Finding, error) {
	declared, documents := map[string]bool{}, []string(nil)
	note := func(file string, declaration *regexp.Regexp, prefix string) error {
		text, err := fs.ReadFile(tree, file)
		for _, m := range declaration.FindAllSubmatch(text, -1) {
			for name := range strings.FieldsSeq(string(m[1])) {
				declared[prefix+name] = true
			}
		}
		return err
	}
	err := walkFiles(tree, func(name string) error {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			return note(name, testFunc, "")
		case name == "Makefile":
			return note(name, targetRule, "make ")
		case path.Ext(name) == ".md" && !slices.Contains(except, name):
			documents = append(documents, name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return notThere(tree, documents, func(_, named string) bool {
		if m := target.FindStringSubmatch(named); m != nil {
			return !declared[m[1]]
		}
		return testName.MatchString(named) && !declared[named]
	})
}

// CheckProof holds the tables below a heading of a document to naming, in the last column of
// each row, at least one test, target of the Makefile, or page.
func CheckProof(tree fs.FS, document, heading string) ([]Finding, error) {
	var findings []Finding
	level, rows, head := 0, 0, false
	err := eachLine(tree, document, func(number int, line string) {
		if depth := len(line) - len(strings.TrimLeft(line, "#")); depth > 0 {
			if strings.TrimLeft(line, "# ") == heading {
				level = depth
			} else if depth <= level {
				level = 0
			}
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if level == 0 || !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") {
			head = head && strings.HasPrefix(line, "|") // of this table
			return
		}
		if !head {
			head = true
			return
		}
		rows++
		last := cells[len(cells)-1]
		for _, m := range code.FindAllStringSubmatch(last, -1) {
			if testName.MatchString(m[1]) || target.MatchString(m[1]) {
				return
			}
		}
		findings = append(findings, Finding{fmt.Sprintf("%s:%d", document, number), "no test is named"})
	})
	if err == nil && rows == 0 {
		findings = append(findings, Finding{document, fmt.Sprintf("there is no table below %q", heading)})
	}
	return findings, err
}
