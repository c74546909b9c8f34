package terminal

import (
	"fmt"
	"html"
	"regexp"
	"strings"

	"github.com/rivo/uniseg"
)

// The size of a cell, and the space around all of them.
const (
	cellWidth, cellHeight = 8.4, 18.0
	margin                = 14.0
)

// colours are the terminal's colours, by the numbers of escape sequences.
var colours = map[string]string{"31": "r", "32": "g", "33": "y", "34": "b", "36": "c"}

// style of the picture: a dark terminal, which is legible on a light page and on a dark one. Where nothing moves, the
// last frame is shown.
const pictureStyle = `text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}
.o{font-weight:bold}.f{fill:#8b949e}.r{fill:#ff7b72}.g{fill:#7ee787}.y{fill:#e3b341}.b{fill:#79c0ff}.c{fill:#76e3ea}
g{visibility:hidden}g:last-of-type{visibility:visible}
`

// animation returns an SVG that shows frames one after the other, again and again.
func animation(title string, frames []frame) string {
	columns, rows, total := 0, 0, 0
	for _, f := range frames {
		rows, total = max(rows, len(f.lines), f.y+1), total+f.millis
		columns = max(columns, f.x+1)
		for _, line := range f.lines {
			columns = max(columns, uniseg.StringWidth(sequence.ReplaceAllString(line, "")))
		}
	}
	width, height := float64(columns)*cellWidth+2*margin, float64(rows)*cellHeight+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n",
		width, height, width, height)
	b.WriteString("<title>" + title + "</title>\n<style>" + pictureStyle)
	begin := 0
	for i, f := range frames {
		hidden := "0%{visibility:hidden}"
		if i == 0 {
			hidden = ""
		}
		fmt.Fprintf(&b, "@keyframes k%d{%s%.3f%%{visibility:visible}%.3f%%{visibility:hidden}}\n", i, hidden,
			percent(begin, total), percent(begin+f.millis, total))
		fmt.Fprintf(&b, "#f%d{animation:k%d %dms step-end infinite}\n", i, i, total)
		begin += f.millis
	}
	b.WriteString("@media(prefers-reduced-motion:reduce){g{animation:none!important}}\n</style>\n")
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8" fill="#0d1117" stroke="#6e7681"/>`+"\n", width-1, height-1)
	for i, f := range frames {
		fmt.Fprintf(&b, "<g id=\"f%d\">\n", i)
		f.draw(&b)
		b.WriteString("</g>\n")
	}
	return b.String() + "</svg>\n"
}

func percent(part, total int) float64 { return 100 * float64(part) / float64(total) }

// sequence is an escape sequence of a frame.
var sequence = regexp.MustCompile(`␛\[([0-9;]*)m`)

// draw draws the cursor, and the runs of text with one style each.
func (f frame) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#8b949e"/>`+"\n",
		margin+float64(f.x)*cellWidth, margin+float64(f.y)*cellHeight, cellWidth, cellHeight)
	class := map[string]bool{} // tmux does not end styles with the line
	for y, line := range f.lines {
		x := 0
		run := func(text string) {
			cells := uniseg.StringWidth(text)
			drawn := strings.TrimLeft(text, " ")
			at := x + cells - uniseg.StringWidth(drawn)
			x += cells
			if drawn = strings.TrimRight(drawn, " "); drawn != "" {
				f.text(b, at, y, drawn, class)
			}
		}
		end := 0
		for _, found := range sequence.FindAllStringSubmatchIndex(line, -1) {
			run(line[end:found[0]])
			end = found[1]
			restyle(class, line[found[2]:found[3]])
		}
		run(line[end:])
	}
}

// restyle takes the numbers of an escape sequence.
func restyle(class map[string]bool, numbers string) {
	for number := range strings.SplitSeq(numbers, ";") {
		switch number {
		case "", "0":
			clear(class)
		case "1":
			class["o"] = true
		case "2":
			class["f"] = true
		case "22":
			delete(class, "o")
			delete(class, "f")
		case "39", "31", "32", "33", "34", "36":
			for _, name := range colours {
				delete(class, name)
			}
			if name := colours[number]; name != "" { // 39 ends a colour
				class[name] = true
			}
		}
	}
}

// text draws a run. Its length is given, so that a font of another width does not shift what is beside it.
func (f frame) text(b *strings.Builder, x, y int, text string, class map[string]bool) {
	var names []string
	for _, name := range []string{"o", "f", "r", "g", "y", "b", "c"} {
		if class[name] {
			names = append(names, name)
		}
	}
	attribute := ""
	if len(names) > 0 {
		attribute = fmt.Sprintf(` class="%s"`, strings.Join(names, " "))
	}
	const baseline = 13.5
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" lengthAdjust="spacingAndGlyphs"%s>%s</text>`+"\n",
		margin+float64(x)*cellWidth, margin+float64(y)*cellHeight+baseline, float64(uniseg.StringWidth(text))*cellWidth,
		attribute, html.EscapeString(text))
}
