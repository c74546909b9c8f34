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

// The document's generated parts are between these.
const (
	beginMark          = "<!-- figures: written by make bench -->"
	endMark            = "<!-- end of figures -->"
	beginLibrariesMark = "<!-- libraries: written by make bench-libraries -->"
	endLibrariesMark   = "<!-- end of libraries -->"
)

// Insert puts the tables into the document's generated part.
func Insert(document, head string, tables []Table) (string, error) {
	return insert(document, beginMark, endMark, head, tables)
}

// InsertLibraries puts the table of [CompareLibraries] into its part of the document.
func InsertLibraries(document, head string, table Table) (string, error) {
	return insert(document, beginLibrariesMark, endLibrariesMark, head, []Table{table})
}

func insert(document, begin, end, head string, tables []Table) (string, error) {
	before, rest, ok := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no part between %q and %q", begin, end)
	}
	parts := []string{head}
	for i := range tables {
		parts = append(parts, tables[i].Markdown())
	}
	return before + begin + "\n" + strings.Join(parts, "\n") + end + after, nil
}
