// Package chart draws the main ratios of the benchmarks as an SVG: bars on a logarithmic scale, to the left of 1 for
// less than the reference, to the right for more. The picture adapts to light and dark backgrounds.
package chart

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Bar is one ratio: its median, lowest and highest value, all above 0.
type Bar struct {
	// Group is the heading above the bar. Bars with the same heading follow each other.
	Group string
	// Label names the bar.
	Label            string
	Value, Low, High float64
}

// The layout, in pixels.
const (
	width     = 760
	plotLeft  = 300
	plotRight = 700
	top       = 58
	rowHeight = 22
	barHeight = 12
	groupGap  = 10
	bottom    = 34
)

// The colours are those of a light background; the dark ones replace them.
const style = `<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.group { font-weight: 600 }
.note, .tick { fill: #59636e }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.one { stroke: #1f2328; stroke-width: 1.5 }
.less { fill: #1a7f37 }
.more { fill: #bc4c00 }
.range { stroke: #59636e; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
.note, .tick { fill: #9198a1 }
.grid { stroke: #3d444d }
.one { stroke: #f0f6fc }
.less { fill: #3fb950 }
.more { fill: #f0883e }
.range { stroke: #9198a1 }
}
</style>
`

// SVG draws the bars under a title and a note. Its result depends on the arguments alone.
func SVG(title, note string, bars []Bar) (string, error) {
	if len(bars) == 0 {
		return "", errors.New("chart: no bars")
	}
	for _, b := range bars {
		if !(b.Low > 0 && b.Low <= b.Value && b.Value <= b.High) || math.IsInf(b.High, 1) {
			return "", fmt.Errorf("chart: %q is %v, from %v to %v: want positive numbers in order", b.Label, b.Value,
				b.Low, b.High)
		}
	}
	p := newPlot(bars)
	var body strings.Builder
	y, group := top, ""
	for _, b := range bars {
		if b.Group != group {
			if group = b.Group; y > top {
				y += groupGap
			}
			fmt.Fprintf(&body, "<text class=\"group\" x=\"12\" y=\"%d\">%s</text>\n", y+16, escaped(group))
			y += rowHeight
		}
		p.bar(&body, b, y)
		y += rowHeight
	}
	var out strings.Builder
	fmt.Fprintf(&out,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`+"\n",
		width, y+bottom, width, y+bottom)
	fmt.Fprintf(&out, "<title>%s</title>\n%s", escaped(title), style)
	fmt.Fprintf(&out, "<text class=\"title\" x=\"12\" y=\"24\">%s</text>\n", escaped(title))
	fmt.Fprintf(&out, "<text class=\"note\" x=\"12\" y=\"44\">%s</text>\n", escaped(note))
	p.grid(&out, y)
	return out.String() + body.String() + "</svg>\n", nil
}

// plot maps ratios to places: powers of 2 have equal distances.
type plot struct{ low, high float64 } // logarithms

func newPlot(bars []Bar) plot {
	p := plot{-1, 1}
	for _, b := range bars {
		p.low, p.high = min(p.low, math.Floor(math.Log2(b.Low))), max(p.high, math.Ceil(math.Log2(b.High)))
	}
	return p
}

func (p plot) x(v float64) float64 {
	return plotLeft + (math.Log2(v)-p.low)/(p.high-p.low)*(plotRight-plotLeft)
}

// grid draws a line for each power of 2 down to y, and its label below.
func (p plot) grid(w *strings.Builder, y int) {
	for e := p.low; e <= p.high; e++ {
		class, v := "grid", math.Exp2(e)
		if v == 1 {
			class = "one"
		}
		line(w, class, p.x(v), top, p.x(v), y)
		fmt.Fprintf(w, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", p.x(v), y+18,
			tick(e))
	}
}

func line(w *strings.Builder, class string, x1 float64, y1 int, x2 float64, y2 int) {
	fmt.Fprintf(w, "<line class=\"%s\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n", class, x1, y1, x2, y2)
}

// tick is a power of 2 as a number or a fraction.
func tick(e float64) string {
	if e < 0 {
		return fmt.Sprintf("1/%.0f", math.Exp2(-e))
	}
	return fmt.Sprintf("%.0f", math.Exp2(e))
}

// bar draws one bar with its label, its range and its value.
func (p plot) bar(w *strings.Builder, b Bar, y int) {
	class, from, to := "more", p.x(1), p.x(b.Value)
	if b.Value < 1 {
		class, from, to = "less", to, from
	}
	middle := y + rowHeight/2
	fmt.Fprintf(w, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", plotLeft-12, middle+4, escaped(b.Label))
	fmt.Fprintf(w, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>\n", class, from,
		middle-barHeight/2, to-from, barHeight)
	line(w, "range", p.x(b.Low), middle, p.x(b.High), middle)
	fmt.Fprintf(w, "<text x=\"%.1f\" y=\"%d\">%.2f</text>\n", max(p.x(1), p.x(b.High))+6, middle+4, b.Value)
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder never fails
	return b.String()
}
