package mutate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The marks around the result in a page.
const (
	reportBegin = "<!-- mutations: begin -->\n"
	reportEnd   = "<!-- mutations: end -->\n"
)

// Table is the result as a table of Markdown: a row a class.
func Table(results []Result) string {
	var b strings.Builder
	b.WriteString("| class | mutations | noticed | the tests that notice |\n|---|--:|--:|---|\n")
	for _, class := range Classes {
		total, killed := 0, 0
		var tests []string
		seen := map[string]bool{}
		for _, r := range results {
			if r.Class != class {
				continue
			}
			total++
			if r.Verdict == Killed {
				killed++
			}
			name, _, _ := strings.Cut(r.Test, "/")
			if !seen[name] {
				seen[name] = true
				tests = append(tests, "`"+name+"`")
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s |\n", class, total, killed, strings.Join(tests, ", "))
	}
	return b.String()
}

// WriteTable puts the table between the marks of a page.
func WriteTable(path string, results []Result) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begun := bytes.Cut(page, []byte(reportBegin))
	_, after, ended := bytes.Cut(rest, []byte(reportEnd))
	if !begun || !ended {
		return errors.New("the page has no marks for the result: " + path)
	}
	text := string(before) + reportBegin + Table(results) + reportEnd + string(after)
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the repository
}
