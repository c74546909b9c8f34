package chart

import (
	"fmt"
	"strconv"
	"strings"
)

// Title and Note are those of the chart of the figures.
const (
	Title = "Cost against GitHub's SDK for Node, which starts its own CLI"
	Note  = "1 is the SDK; left is less, right is more. Medians and ranges of one run, logarithmic."
)

// row finds a ratio in a document: in a table, in the row that begins with some cells.
type row struct {
	group, label string
	table        string
	cells        []string
	// column is the ratio's column. With over it is a figure, to be divided by that column's median.
	column, over string
}

const (
	events  = "CPU per event, from the CLI to one subscriber"
	sends   = "Send, median time to the reply"
	tools   = "Tool call, median time to the answer"
	turns   = "Short turn on the real CLI, median time"
	against = "against the SDK for Node"

	ingestTable = "One event: read, translated, kept, sent to one subscriber"
	tripTable   = "Round trips"
	turnTable   = "A short turn on the real CLI"

	wayRelay = "direct, its bytes carried by grpc-go alone, unix socket"
	wayUnix  = "bridge, unix socket"
	wayShim  = "official SDK for Node, shim, bridge over unix"
)

// rows are the bars of the chart.
var rows = []row{
	{events, "delta of 0.4 KB", ingestTable, []string{"delta"}, "CPU", "SDK for Node"},
	{events, "1 KB", ingestTable, []string{"tool1k"}, "CPU", "SDK for Node"},
	{events, "4 KB", ingestTable, []string{"msg4k"}, "CPU", "SDK for Node"},
	{events, "20 KB", ingestTable, []string{"msg20k"}, "CPU", "SDK for Node"},
	{turns, "through the bridge", turnTable, []string{wayUnix}, against, ""},
	{turns, "the SDK through shim and bridge", turnTable, []string{wayShim}, against, ""},
	{turns, "SDK for Python", turnTable, []string{"official SDK for Python, stdio"}, against, ""},
	{sends, "grpc-go carrying the bytes", tripTable, []string{"send", wayRelay}, against, ""},
	{sends, "through the bridge", tripTable, []string{"send", wayUnix}, against, ""},
	{sends, "the SDK through shim and bridge", tripTable, []string{"send", wayShim}, against, ""},
	{sends, "SDK for Python", tripTable, []string{"send", "official SDK for Python, stdio"}, against, ""},
	{tools, "grpc-go carrying the bytes", tripTable, []string{"tool call", wayRelay}, against, ""},
	{tools, "through the bridge", tripTable, []string{"tool call", wayUnix}, against, ""},
	{tools, "the SDK through shim and bridge", tripTable, []string{"tool call", wayShim}, against, ""},
	{tools, "SDK for Python", tripTable, []string{"tool call", "official SDK for Python, stdio"}, against, ""},
}

// Draw draws the chart of a document that make bench wrote. Rows that were not run are left out.
func Draw(document string) (string, error) {
	var bars []Bar
	for _, r := range rows {
		b, ok, err := r.find(document)
		if err != nil {
			return "", err
		}
		if ok {
			bars = append(bars, b)
		}
	}
	return SVG(Title, Note, bars)
}

// find reads the row's ratio. ok is false if the document has no such figure.
func (r row) find(document string) (b Bar, ok bool, err error) {
	_, rest, found := strings.Cut(document, "\n## "+r.table+"\n")
	if !found {
		return b, false, nil
	}
	var header []string
	for line := range strings.Lines(rest) {
		cells, isRow := split(line)
		switch {
		case strings.HasPrefix(line, "#"):
			return b, false, nil
		case !isRow:
		case header == nil:
			header = cells
		case begins(cells, r.cells):
			return r.bar(header, cells)
		}
	}
	return b, false, nil
}

// bar reads the bar from a row of the document.
func (r row) bar(header, cells []string) (b Bar, ok bool, err error) {
	if len(cells) != len(header) {
		return b, false, fmt.Errorf("chart: the row %q has %d cells, its header %d", r.label, len(cells), len(header))
	}
	values := map[string]string{}
	for i, name := range header {
		values[name] = cells[i]
	}
	if values[r.column] == "not run" || r.over != "" && values[r.over] == "not run" {
		return b, false, nil
	}
	b = Bar{Group: r.group, Label: r.label}
	if b.Value, b.Low, b.High, err = figure(values[r.column]); err != nil || r.over == "" {
		return b, err == nil, err
	}
	by, _, _, err := figure(values[r.over])
	if err != nil {
		return b, false, err
	}
	b.Value, b.Low, b.High = b.Value/by, b.Low/by, b.High/by
	return b, true, nil
}

// split returns the cells of a line of a table.
func split(line string) (cells []string, ok bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "| ") || !strings.HasSuffix(line, " |") {
		return nil, false
	}
	return strings.Split(line[2:len(line)-2], " | "), true
}

func begins(cells, with []string) bool {
	if len(cells) < len(with) {
		return false
	}
	for i := range with {
		if cells[i] != with[i] {
			return false
		}
	}
	return true
}

// figure reads "1.5 [1.4..1.7]": the median, the lowest and the highest value.
func figure(text string) (median, low, high float64, err error) {
	value, bounds, _ := strings.Cut(strings.TrimSuffix(text, "]"), " [")
	from, to, _ := strings.Cut(bounds, "..")
	for _, part := range []struct {
		text string
		to   *float64
	}{{value, &median}, {from, &low}, {to, &high}} {
		if *part.to, err = strconv.ParseFloat(part.text, 64); err != nil {
			return 0, 0, 0, fmt.Errorf("chart: %q is no figure with a range: %w", text, err)
		}
	}
	return median, low, high, nil
}
