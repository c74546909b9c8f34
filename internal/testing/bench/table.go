package bench

import (
	"fmt"
	"strings"
)

// Table is a table of figures.
type Table struct {
	Title string
	// Note says what the figures are.
	Note   string
	Header []string
	Rows   [][]string
}

func (t *Table) row(cells ...string) { t.Rows = append(t.Rows, cells) }

// Markdown is the table as a section of a document.
func (t *Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n", t.Title, t.Note)
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---"
	}
	for _, row := range append([][]string{t.Header, rule}, t.Rows...) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

// Document is a page of tables, which a target of the Makefile writes. The head says where they were measured.
func Document(title, target, head string, tables ...Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n<!-- written by %s -->\n\n%s\n", title, target, head)
	for i := range tables {
		b.WriteString("\n" + tables[i].Markdown())
	}
	return b.String()
}
