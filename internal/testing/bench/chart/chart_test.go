package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// elements returns the elements of a picture by name, and its text; a picture that is no XML fails the test.
func elements(t *testing.T, svg string) (counts map[string]int, text string) {
	t.Helper()
	counts = map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return counts, text
		case err != nil:
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			counts[e.Name.Local]++
		case xml.CharData:
			text += string(e) + "\n"
		}
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	svg, err := SVG("A < B", "a note", []Bar{
		{"first", "half", 0.5, 0.4, 0.6}, {"first", "one", 1, 1, 1}, {"second & last", "four", 4, 3, 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	counts, text := elements(t, svg)
	// From 1/4, below 0.4, to 8, above 5: six lines, and one for the range of each bar.
	if counts["rect"] != 3 || counts["line"] != 6+3 || counts["title"] != 1 {
		t.Errorf("the picture has %v", counts)
	}
	for _, want := range []string{"A < B", "a note", "first", "second & last", "half", "0.50", "4.00", "1/4", "8"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("the picture does not say %q", want)
		}
	}
	if !strings.Contains(svg, "prefers-color-scheme: dark") {
		t.Error("the picture has no dark colours")
	}
}

// Bars lie on the right side of 1, and powers of 2 have equal distances.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p := newPlot([]Bar{{Value: 0.3, Low: 0.26, High: 0.4}, {Value: 3, Low: 2, High: 3.9}})
	if p.low != -2 || p.high != 2 {
		t.Errorf("the plot reaches from 2^%v to 2^%v", p.low, p.high)
	}
	if p.x(0.25) != plotLeft || p.x(4) != plotRight || math.Abs(p.x(2)-p.x(1)-(p.x(1)-p.x(0.5))) > 1e-9 {
		t.Errorf("places: %v, %v, %v, %v, %v", p.x(0.25), p.x(0.5), p.x(1), p.x(2), p.x(4))
	}
	for _, tc := range []struct {
		value float64
		want  string
	}{{0.5, `<rect class="less" x="400.0" y="5" width="100.0" height="12"/>`},
		{2, `<rect class="more" x="500.0" y="5" width="100.0" height="12"/>`}} {
		var b strings.Builder
		p.bar(&b, Bar{Value: tc.value, Low: tc.value, High: tc.value}, 0)
		if !strings.Contains(b.String(), tc.want) {
			t.Errorf("%v is drawn as %s, want %s", tc.value, b.String(), tc.want)
		}
	}
}

func TestBadBars(t *testing.T) {
	t.Parallel()
	for name, bars := range map[string][]Bar{
		"none": nil, "zero": {{Value: 0, Low: 0, High: 0}}, "order": {{Value: 1, Low: 2, High: 3}},
		"not a number": {{Value: math.NaN(), Low: 1, High: 2}}, "infinite": {{Value: 1, Low: 1, High: math.Inf(1)}},
	} {
		if svg, err := SVG("t", "n", bars); err == nil {
			t.Errorf("%s: drawn as %s", name, svg)
		}
	}
}

const document = `
## Round trips

| operation | way | against the SDK for Node |
| --- | --- | --- |
| send | bridge, unix socket | 3.81 [3.75..4.21] |
| send | official SDK for Node, shim, bridge over unix | not run |

## One event: read, translated, kept, sent to one subscriber

| event | CPU | SDK for Node |
| --- | --- | --- |
| delta | 2.00 [1.00..3.00] | 10.0 [9.00..11.0] |
`

func TestFiguresOfADocument(t *testing.T) {
	t.Parallel()
	svg, err := Draw(document)
	if err != nil {
		t.Fatal(err)
	}
	counts, text := elements(t, svg)
	if counts["rect"] != 2 || !strings.Contains(text, "\n3.81\n") || !strings.Contains(text, "\n0.20\n") {
		t.Errorf("%v, %s", counts, text)
	}
	for name, bad := range map[string]string{
		"a word":    strings.Replace(document, "3.81 [", "many [", 1),
		"no range":  strings.Replace(document, " [3.75..4.21]", "", 1),
		"a cell":    strings.Replace(document, "| delta |", "| delta | x |", 1),
		"no tables": "",
	} {
		if _, err := Draw(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// documents is the folder of docs/performance.md, and of the folder with what it is drawn from.
const documents = "../../../../docs"

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{documents}, elements...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The committed chart shows the committed tables: make bench writes both, and bench -chart the chart alone.
func TestCommittedChart(t *testing.T) {
	t.Parallel()
	want, err := Draw(read(t, "performance", "figures.md"))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, "performance", "figures.svg") != want {
		t.Error("docs/performance/figures.svg does not show the tables of docs/performance/figures.md: run " +
			"go run ./internal/testing/bench/cmd/bench -chart docs/performance/figures.md")
	}
}

// Each figure with a range in docs/performance.md stands in the tables that the targets write: the page is written by
// hand, and has to follow them.
func TestCommittedPage(t *testing.T) {
	t.Parallel()
	tables := read(t, "performance", "figures.md") + read(t, "performance", "libraries.md")
	figures := regexp.MustCompile(`[\d.]+ \[[\d.]+\]`).FindAllString(read(t, "performance.md"), -1)
	if len(figures) == 0 {
		t.Error("docs/performance.md has no figures with a range")
	}
	for _, figure := range figures {
		if !strings.Contains(tables, " "+figure) {
			t.Errorf("%s of docs/performance.md is in no table of docs/performance", figure)
		}
	}
}
