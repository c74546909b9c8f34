package terminal

import (
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/charmbracelet/x/ansi"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Styles use attributes and the terminal's own 16 colours, which a person has chosen to be readable on their background.
// Marks stay where a terminal without colours would show nothing.
var (
	plain   = lipgloss.NewStyle()
	heading = plain.Bold(true).Foreground(lipgloss.Cyan)
	code    = plain.Foreground(lipgloss.Yellow)
	address = plain.Foreground(lipgloss.Blue)
	faint   = plain.Faint(true)
)

var parser = goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()

// maxMarkdown is the size above which a source is shown as it is: parsing deeply nested blocks takes quadratic time.
const maxMarkdown = 32 << 10

// Markdown shows Markdown in lines of at most width cells. The source may be that of others: each text is cleaned after
// its character references are resolved. Links show their address and are no links of the terminal, which could lead
// elsewhere.
func Markdown(source string, width int) []string {
	if len(source) > maxMarkdown {
		return Wrap(Clean(source), width)
	}
	m := markdown{[]byte(source)}
	return m.blocks(parser.Parse(text.NewReader(m.source)), max(width, 1), true)
}

// markdown is a source while it is drawn.
type markdown struct{ source []byte }

// blocks draws the blocks in a node, with empty lines between loose ones.
func (m markdown) blocks(n ast.Node, width int, loose bool) (lines []string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		block := m.block(c, width)
		if len(lines) > 0 && len(block) > 0 && loose {
			lines = append(lines, "")
		}
		lines = append(lines, block...)
	}
	return lines
}

func (m markdown) block(n ast.Node, width int) []string {
	switch n := n.(type) {
	case *ast.Heading:
		return wrapStyled(heading.Render(strings.Repeat("#", n.Level)+" ")+m.inline(n, heading), width)
	case *ast.List:
		return m.list(n, width)
	case *ast.Blockquote:
		return indent(faint.Render("│ "), faint.Render("│ "), m.blocks(n, width-2, true), width)
	case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.HTMLBlock:
		return indent("  ", "  ", m.code(n, width-2), width)
	case *ast.ThematicBreak:
		return []string{faint.Render(strings.Repeat("─", min(width, 40)))}
	case *extast.Table:
		return m.table(n, width)
	}
	return wrapStyled(m.inline(n, plain), width)
}

// indent puts a prefix before the first line, and another one before the rest. Where there is no room it adds none.
func indent(first, rest string, lines []string, width int) []string {
	if width <= Width(first) {
		return lines
	}
	for i := range lines {
		prefix := rest
		if i == 0 {
			prefix = first
		}
		lines[i] = prefix + lines[i]
	}
	return lines
}

func (m markdown) list(list *ast.List, width int) (lines []string) {
	number := list.Start
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		mark := "• "
		if list.IsOrdered() {
			mark = fmt.Sprintf("%d. ", number)
			number++
		}
		inner := m.blocks(item, width-len([]rune(mark)), !list.IsTight)
		if len(inner) == 0 {
			inner = []string{""}
		}
		lines = append(lines, indent(mark, strings.Repeat(" ", len([]rune(mark))), inner, width)...)
	}
	return lines
}

// code draws the lines of a block as they are. Long ones are broken anywhere, so that nothing is lost.
func (m markdown) code(n ast.Node, width int) (lines []string) {
	raw := strings.TrimRight(string(n.Lines().Value(m.source)), "\n")
	if html, ok := n.(*ast.HTMLBlock); ok && html.HasClosure() {
		raw += "\n" + strings.TrimRight(string(html.ClosureLine.Value(m.source)), "\n")
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(Clean(raw), "\t", tab), "\n") {
		for part := range strings.SplitSeq(ansi.Hardwrap(line, max(width, 1), true), "\n") {
			lines = append(lines, code.Render(part))
		}
	}
	return lines
}

func (m markdown) table(n *extast.Table, width int) []string {
	drawn := table.New().Border(lipgloss.NormalBorder()).BorderStyle(faint).
		StyleFunc(func(int, int) lipgloss.Style { return plain.Padding(0, 1) })
	for row := n.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []string
		style := plain
		if _, ok := row.(*extast.TableHeader); ok {
			style = plain.Bold(true)
		}
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, m.inline(cell, style))
		}
		if _, ok := row.(*extast.TableHeader); ok {
			drawn.Headers(cells...)
		} else {
			drawn.Row(cells...)
		}
	}
	shown := drawn.String()
	if lipgloss.Width(shown) > width {
		shown = drawn.Width(width).String()
	}
	return wrapStyled(shown, width)
}

// inline draws the text in a block.
func (m markdown) inline(n ast.Node, style lipgloss.Style) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b.WriteString(m.span(c, style))
	}
	return b.String()
}

func (m markdown) span(n ast.Node, style lipgloss.Style) string {
	switch n := n.(type) {
	case *ast.Text:
		shown := leaf(n.Value(m.source), style)
		if n.SoftLineBreak() || n.HardLineBreak() { // answers of models mean them
			shown += "\n"
		}
		return shown
	case *ast.String:
		return leaf(n.Value, style)
	case *ast.CodeSpan:
		return m.codeSpan(n, code.Inherit(style))
	case *ast.Emphasis:
		if n.Level > 1 {
			return m.inline(n, style.Bold(true))
		}
		return m.inline(n, style.Italic(true))
	case *extast.Strikethrough:
		return "~~" + m.inline(n, style.Strikethrough(true)) + "~~"
	case *ast.Link:
		return m.link(m.inline(n, style), n.Destination)
	case *ast.Image:
		return m.link("image "+m.inline(n, style), n.Destination)
	case *ast.AutoLink:
		return leaf(n.Label(m.source), address)
	case *ast.RawHTML:
		return leaf(n.Segments.Value(m.source), style)
	case *extast.TaskCheckBox:
		if n.IsChecked {
			return "[x] "
		}
		return "[ ] "
	}
	return m.inline(n, style)
}

// codeSpan is code in a text, as it is written.
func (m markdown) codeSpan(n ast.Node, style lipgloss.Style) string {
	var raw strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if part, ok := c.(*ast.Text); ok {
			raw.Write(part.Value(m.source))
		}
	}
	return style.Render("`" + strings.NewReplacer("\n", " ", "\t", tab).Replace(Clean(raw.String())) + "`")
}

// link is a text with the address that it leads to.
func (m markdown) link(shown string, destination []byte) string {
	to := leaf(destination, address)
	if text := ansi.Strip(shown); text == "" || text == ansi.Strip(to) {
		return to
	}
	return shown + " (" + to + ")"
}

// leaf draws a text of the source. Only here do its characters get to the terminal.
func leaf(source []byte, style lipgloss.Style) string {
	resolved := util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(source)))
	clean := strings.ReplaceAll(Clean(string(resolved)), "\n", " ")
	if clean == "" {
		return ""
	}
	return style.Render(strings.ReplaceAll(clean, "\t", tab))
}

// wrapStyled breaks lines with styles, each of which continues on the next line.
func wrapStyled(shown string, width int) []string {
	if strings.Trim(shown, "\n ") == "" {
		return nil
	}
	width = max(width, 1)
	var b strings.Builder
	w := lipgloss.NewWrapWriter(&b)
	// A space at the beginning of a line can leave it too long, which the second step mends.
	_, _ = w.Write([]byte(ansi.Hardwrap(ansi.Wrap(shown, width, ""), width, true))) // a Builder does not fail
	_ = w.Close()
	var lines []string
	for line := range strings.SplitSeq(b.String(), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
