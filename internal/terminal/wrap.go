package terminal

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// tab is what a tab becomes: terminals disagree about its width.
const tab = "    "

// Wrap breaks clean text into lines of at most width cells, between words where it can. Styles may be in it.
func Wrap(text string, width int) []string {
	text = strings.ReplaceAll(text, "\t", tab)
	return strings.Split(ansi.Wrap(text, max(width, 1), ""), "\n")
}

// Cut shortens a line of clean text to width cells, with an ellipsis where something is missing.
func Cut(line string, width int) string {
	return ansi.Truncate(strings.ReplaceAll(line, "\t", tab), max(width, 0), "…")
}

// Width is the number of cells of a line.
func Width(line string) int { return ansi.StringWidth(line) }
