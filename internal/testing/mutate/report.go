package mutate

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"strings"
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

// GeneratedTable is what became of generated mutations: a row a package, and a line for each that survived.
func GeneratedTable(found []Finding, seed uint64) string {
	var b strings.Builder
	b.WriteString("| package | mutations | noticed by the simulator | only by unit tests | survived |\n|---|--:|--:|--:|--:|\n")
	row := func(name string, of func(Finding) bool) {
		counts, total := map[Notice]int{}, 0
		for _, f := range found {
			if of(f) {
				counts[f.Notice]++
				total++
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", name, total, counts[BySimulator], counts[ByUnitTests], counts[ByNone])
	}
	for _, pkg := range Deciding {
		row("`"+pkg+"`", func(f Finding) bool { return f.Package == pkg })
	}
	for _, operator := range Operators {
		row(operator, func(f Finding) bool { return f.Operator == operator })
	}
	row(fmt.Sprintf("all, of seed %d", seed), func(Finding) bool { return true })
	b.WriteString("\nThose that survived:\n\n")
	for _, f := range found {
		if f.Notice == ByNone {
			fmt.Fprintf(&b, "- `%s`: %s\n", strings.ReplaceAll(f.Name, "`", "'"), cmp.Or(f.Reason, "no reason known"))
		}
	}
	return b.String()
}

// Write puts a table between the marks that a page has for it.
func Write(path, name, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+": begin -->\n", "<!-- "+name+": end -->\n"
	before, rest, begun := bytes.Cut(page, []byte(begin))
	_, after, ended := bytes.Cut(rest, []byte(end))
	if !begun || !ended {
		return fmt.Errorf("%s has no marks for the result: %s", path, name)
	}
	text = string(before) + begin + text + end + string(after)
	return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // a page of the repository
}
