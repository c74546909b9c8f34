package conformance

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Table is the result as a table in Markdown: for each family, language and transport the number of cases that passed.
func Table(verdicts []Verdict) string {
	var families, columns []string
	type cell struct{ passed, known, all int }
	cells := map[[2]string]*cell{}
	for _, v := range verdicts {
		family, _, _ := strings.Cut(v.Case, "/")
		column := v.Language + ", " + v.Transport
		if !slices.Contains(families, family) {
			families = append(families, family)
		}
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
		key := [2]string{family, column}
		if cells[key] == nil {
			cells[key] = &cell{}
		}
		cells[key].all++
		switch {
		case v.Err == nil:
			cells[key].passed++
		case v.Known != "":
			cells[key].known++
		}
	}
	slices.Sort(families)
	slices.SortFunc(columns, func(a, b string) int { return columnOrder(a) - columnOrder(b) })
	var b strings.Builder
	fmt.Fprintf(&b, "| family | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, family := range families {
		fmt.Fprintf(&b, "| %s |", family)
		for _, column := range columns {
			switch c := cells[[2]string{family, column}]; {
			case c == nil:
				b.WriteString(" |")
			case c.known > 0:
				fmt.Fprintf(&b, " %d of %d, %d known |", c.passed, c.all, c.known)
			default:
				fmt.Fprintf(&b, " %d of %d |", c.passed, c.all)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func columnOrder(column string) int {
	language, transport, _ := strings.Cut(column, ", ")
	return 10*slices.Index(Languages, language) + slices.Index([]string{Unix, TLS, Web}, transport)
}

// Marks of the part of a page that the suite writes.
const (
	beginMark = "<!-- table: written by make conformance -->\n"
	endMark   = "<!-- end -->"
)

// WriteTable puts text between the marks of a page.
func WriteTable(file, text string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(beginMark))
	_, after, ended := bytes.Cut(rest, []byte(endMark))
	if !found || !ended {
		return fmt.Errorf("%s: there is no line %q before %q", file, strings.TrimSpace(beginMark), endMark)
	}
	page = slices.Concat(before, []byte(beginMark), []byte(text), []byte(endMark), after)
	return os.WriteFile(file, page, 0o644)
}
