package cli

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"

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

// isTerminal reports whether a person reads or writes f.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// terminalWidth is the width of the terminal that w is; 0 if it is none.
func terminalWidth(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}
