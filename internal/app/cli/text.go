package cli

import (
	"strings"

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// cut cuts a line to the width of a terminal; 0 is no limit.
func cut(line string, width int) string {
	if width <= 0 {
		return line
	}
	return terminal.Cut(line, width)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-terminal.Width(s)))
}

// fit breaks lines between words so that they fit a width; 0 is no limit. Lines of a paragraph that begin at the margin
// are one text, and what continues another line is indented.
func fit(text string, width int) string {
	if width <= 0 {
		return text
	}
	var out, paragraph []string
	flush := func() {
		if len(paragraph) > 0 {
			out = append(out, wrap(strings.Join(paragraph, " "), width)...)
		}
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		if line != "" && indent == "" && !strings.Contains(line, between) {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		if indent == "" {
			indent = "    "
		}
		if terminal.Width(line) <= width || 2*len(indent) > width {
			out = append(out, line)
			continue
		}
		first, rest, _ := strings.Cut(strings.Join(wrap(line, width), "\n"), "\n")
		out = append(out, first)
		for _, part := range wrap(strings.Join(strings.Fields(rest), " "), width-len(indent)) {
			out = append(out, indent+part)
		}
	}
	flush()
	return strings.Join(out, "\n")
}

// wrap breaks a line between words. A hyphen is a part of its word, as in flags.
func wrap(line string, width int) []string {
	const hyphen = "\u2011" // one that allows no break
	lines := terminal.Wrap(strings.ReplaceAll(line, "-", hyphen), width)
	for i, one := range lines {
		lines[i] = strings.ReplaceAll(one, hyphen, "-")
	}
	return lines
}
