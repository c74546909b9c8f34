package chat

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// editor is the text that a person types: grapheme clusters, and a place before one of them.
type editor struct {
	text []string
	at   int
}

// clusters splits a text as people see it.
func clusters(text string) (all []string) {
	for text != "" {
		cluster, _ := ansi.FirstGraphemeCluster(text, ansi.GraphemeWidth)
		if cluster == "" {
			return all
		}
		all, text = append(all, cluster), text[len(cluster):]
	}
	return all
}

func (e *editor) String() string { return strings.Join(e.text, "") }

// set replaces the text and goes to its end.
func (e *editor) set(text string) {
	e.text = clusters(text)
	e.at = len(e.text)
}

// insert inserts a text, which may be pasted: of control characters, line ends stay.
func (e *editor) insert(text string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	before := strings.Join(e.text[:e.at], "") + terminal.Clean(strings.ReplaceAll(text, "\t", "    "))
	after := strings.Join(e.text[e.at:], "")
	e.text = clusters(before + after)
	e.at = min(len(clusters(before)), len(e.text))
}

func (e *editor) remove(from, to int) {
	from, to = max(from, 0), min(to, len(e.text))
	e.text = slices.Delete(e.text, from, to)
	e.at = from
}

func (e *editor) move(by int) { e.at = max(0, min(e.at+by, len(e.text))) }

// lineStart and lineEnd are the places where the line of the cursor begins and ends.
func (e *editor) lineStart() int {
	i := e.at
	for i > 0 && e.text[i-1] != "\n" {
		i--
	}
	return i
}

func (e *editor) lineEnd() int {
	i := e.at
	for i < len(e.text) && e.text[i] != "\n" {
		i++
	}
	return i
}

// wordStart is where the word before the cursor begins.
func (e *editor) wordStart() int {
	i := e.at
	for i > 0 && strings.TrimSpace(e.text[i-1]) == "" {
		i--
	}
	for i > 0 && strings.TrimSpace(e.text[i-1]) != "" {
		i--
	}
	return i
}

// key changes the text by a key, and reports whether the key means something to it.
func (e *editor) key(name string) bool {
	switch name {
	case "left", "ctrl+b":
		e.move(-1)
	case "right", "ctrl+f":
		e.move(1)
	case "home", "ctrl+a":
		e.at = e.lineStart()
	case "end", "ctrl+e":
		e.at = e.lineEnd()
	case "backspace", "ctrl+h":
		if e.at > 0 {
			e.remove(e.at-1, e.at)
		}
	case "delete":
		e.remove(e.at, e.at+1)
	case "ctrl+w", "alt+backspace":
		e.remove(e.wordStart(), e.at)
	case "ctrl+u":
		e.remove(e.lineStart(), e.at)
	case "ctrl+k":
		e.remove(e.at, e.lineEnd())
	case "alt+enter", "shift+enter", "ctrl+j":
		e.insert("\n")
	default:
		return false
	}
	return true
}

// rows breaks the text into rows of at most width cells, and returns the cell of the cursor.
func (e *editor) rows(width int) (rows []string, x, y int) {
	row, cells := "", 0
	for i := 0; ; i++ {
		next, end := 0, i == len(e.text)
		if !end && e.text[i] != "\n" {
			next = max(terminal.Width(e.text[i]), 0)
		}
		if cells+next > width || end && i == e.at && cells >= width { // the cursor needs a cell too
			rows, row, cells = append(rows, row), "", 0
		}
		if i == e.at {
			x, y = cells, len(rows)
		}
		switch {
		case end:
			return append(rows, row), x, y
		case e.text[i] == "\n":
			rows, row, cells = append(rows, row), "", 0
		default:
			row, cells = row+e.text[i], cells+next
		}
	}
}
