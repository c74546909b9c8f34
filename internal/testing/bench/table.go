package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
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

// Print writes the table for a terminal.
func (t *Table) Print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s\n", t.Title)
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range append([][]string{t.Header}, t.Rows...) {
		fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// Markdown is the table in a document.
func (t *Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", t.Title, t.Note)
	rule := make([]string, len(t.Header))
	for i := range rule {
		rule[i] = "---"
	}
	for _, row := range append([][]string{t.Header, rule}, t.Rows...) {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

// The document's generated part is between these.
const (
	beginMark = "<!-- figures: written by make bench -->"
	endMark   = "<!-- end of figures -->"
)

// Insert puts the tables into the document's generated part.
func Insert(document, head string, tables []Table) (string, error) {
	before, rest, ok := strings.Cut(document, beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no part between %q and %q", beginMark, endMark)
	}
	parts := []string{head}
	for i := range tables {
		parts = append(parts, tables[i].Markdown())
	}
	return before + beginMark + "\n" + strings.Join(parts, "\n") + endMark + after, nil
}
