package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// Formats of output, which every command has: one variable sets it for all.
const (
	formatText  = "text"
	formatJSON  = "json"
	formatLines = "jsonl"
)

// printer prints what a command has found, for people or as JSON.
type printer struct {
	out    *output
	format string
	// page makes what follows go to a pager if it is long.
	page func()
}

// printer adds the flag that chooses a format.
func (p *program) printer(f *flags) *printer {
	out := &printer{out: p.stdout, format: formatText, page: p.page}
	p.noPagerFlag(f)
	f.VarP(&choice{&out.format, []string{formatText, formatJSON, formatLines}}, "output", "o",
		"`format`: text, json, or jsonl for a document a line")
	return out
}

func (p *printer) forPeople() bool { return p.format == formatText }

// print prints a table, or the values of its rows as JSON.
func (p *printer) print(t table) error {
	p.page()
	switch p.format {
	case formatJSON:
		return p.document(t.values)
	case formatLines:
		for _, one := range t.values {
			if err := p.line(one); err != nil {
				return err
			}
		}
		return nil
	}
	return t.print(p.out)
}

// field is a line of a record.
type field struct{ name, value string }

// record prints the fields that have a value, or the value as JSON.
func (p *printer) record(fields []field, value any) error {
	p.page()
	if !p.forPeople() {
		return p.document(value)
	}
	width := 0
	for _, f := range fields {
		if f.value != "" {
			width = max(width, len(f.name)+2)
		}
	}
	var b strings.Builder
	for _, f := range fields {
		if f.value != "" {
			b.WriteString(pad(f.name+":", width) + terminal.CleanLine(f.value) + "\n")
		}
	}
	_, err := io.WriteString(p.out, b.String())
	return err
}

// document prints one JSON document, indented unless a line was asked for.
func (p *printer) document(value any) error {
	if p.format == formatLines {
		return p.line(value)
	}
	text, err := jsonText(value)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err = p.out.Write(out.Bytes())
	return err
}

// line prints a JSON document on one line.
func (p *printer) line(value any) error {
	text, err := jsonText(value)
	if err != nil {
		return err
	}
	_, err = p.out.Write(append(text, '\n'))
	return err
}

// jsonText is a value, a message of the API or a list of them as JSON on one line. Characters that a terminal would act
// on are escaped.
func jsonText(value any) ([]byte, error) {
	text, err := marshal(value)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Compact(&out, text); err != nil { // protojson varies its spaces
		return nil, err
	}
	return []byte(terminal.CleanJSON(out.String())), nil
}

func marshal(value any) ([]byte, error) {
	switch v := value.(type) {
	case proto.Message:
		return protojson.Marshal(v)
	case members:
		return v.marshal()
	case []any:
		text := []byte{'['}
		for i, one := range v {
			part, err := marshal(one)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				text = append(text, ',')
			}
			text = append(text, part...)
		}
		return append(text, ']'), nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return text.Bytes(), err
}

// members are the members of a JSON object, in their order.
type members []struct {
	name  string
	value any
}

func (m members) marshal() ([]byte, error) {
	text := []byte{'{'}
	for i, one := range m {
		value, err := marshal(one.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, "%q:", one.name)
		text = append(text, value...)
	}
	return append(text, '}'), nil
}

// table is what a list prints.
type table struct {
	columns []column
	// rows are for people, values are the same in JSON.
	rows   [][]string
	values []any
}

// column is a column of a table.
type column struct {
	head string
	// least is the width that the column can be cut to where the terminal is too narrow; 0 if it stays whole.
	least int
	// width is the width of the column; it grows with the cells of rows that are added.
	width int
}

// add adds a row, with what others have written made harmless.
func (t *table) add(value any, cells ...string) {
	for i, cell := range cells {
		cells[i] = terminal.CleanLine(cell)
		t.columns[i].width = max(t.columns[i].width, uniseg.StringWidth(cells[i]))
	}
	t.rows, t.values = append(t.rows, cells), append(t.values, value)
}

// print prints the table, cut to the terminal.
func (t *table) print(w io.Writer) error {
	_, err := io.WriteString(w, t.text(terminalWidth(w)))
	return err
}

// text is the table, cut to a width. 0 is no limit.
func (t *table) text(width int) string {
	t.fit(width)
	var lines strings.Builder
	lines.WriteString(t.line(t.heads(), width))
	for _, row := range t.rows {
		lines.WriteString(t.line(row, width))
	}
	return lines.String()
}

func (t *table) heads() []string {
	heads := make([]string, len(t.columns))
	for i, c := range t.columns {
		heads[i] = c.head
	}
	return heads
}

const between = "  "

// fit makes the widest columns narrower until the table has a width. 0 is no limit.
func (t *table) fit(width int) {
	total := -len(between)
	for i := range t.columns {
		t.columns[i].width = max(t.columns[i].width, len(t.columns[i].head))
		total += t.columns[i].width + len(between)
	}
	for ; width > 0 && total > width; total-- {
		widest := -1
		for i, c := range t.columns {
			if c.least > 0 && c.width > c.least && (widest < 0 || c.width > t.columns[widest].width) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		t.columns[widest].width--
	}
}

// line is a row as text.
func (t *table) line(cells []string, width int) string {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(pad(cut(cell, t.columns[i].width), t.columns[i].width))
	}
	return cut(strings.TrimRight(b.String(), " "), width) + "\n"
}

// choice is a flag with one of several values.
type choice struct {
	value *string
	of    []string
}

func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (*choice) Type() string { return "choice" }

func (c *choice) Set(text string) error {
	if !slices.Contains(c.of, text) {
		return fmt.Errorf("want one of %s", strings.Join(c.of, ", "))
	}
	*c.value = text
	return nil
}
