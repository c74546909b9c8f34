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

// pad fills a line with spaces up to a width.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-terminal.Width(s)))
}
