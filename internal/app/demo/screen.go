package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// colours are what labels are shown in, where there are colours.
var colours = map[string]string{
	"you": "1", "agent": "32", "tool": "35", "asks": "33", "answer": "33", "event": "2", "CLI": "36", "server": "36",
	"session": "36", "end": "36",
}

const margin = 9

// screen shows who says what. Several goroutines may use it.
type screen struct {
	out    io.Writer
	colour bool

	mu sync.Mutex
	// speaker is who said the last piece of an unfinished line.
	speaker string
}

func newScreen(out io.Writer, colour bool) *screen { return &screen{out: out, colour: colour} }

func (s *screen) say(label, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish()
	s.write(s.label(label) + indented(fmt.Sprintf(format, args...)) + "\n")
}

// add shows a piece of a message that arrives in pieces.
func (s *screen) add(label, piece string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.speaker != label {
		s.finish()
		s.speaker = label
		s.write(s.label(label))
	}
	s.write(indented(piece))
}

func (s *screen) gap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish()
	s.write("\n")
}

func (s *screen) finish() {
	if s.speaker != "" {
		s.speaker = ""
		s.write("\n")
	}
}

// write shows text. Errors of the output cannot be reported.
func (s *screen) write(text string) { _, _ = io.WriteString(s.out, text) }

func (s *screen) label(name string) string {
	padded := fmt.Sprintf("%-*s", margin, name)
	if !s.colour {
		return padded
	}
	return "\x1b[" + colours[name] + "m" + padded + "\x1b[0m"
}

// indented keeps lines that follow under the first.
func indented(text string) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", margin))
}
