package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// Screen is a conversation on a terminal: the timeline, a line of state, and what the person types. It is drawn as a
// whole from its state, so that a terminal that changes its size while text streams shows the same as one that had the
// size before.
type Screen struct {
	Conversation
	// The session's id, for the head line.
	ID string

	width, height int
	input         editor
	// What the person had typed before the question came.
	draft string
	// The callback that the input is for; empty for a prompt.
	asked   string
	history history
	// Why the last input was not taken.
	problem string
	// How many lines the timeline is scrolled up.
	scroll int
	whole  bool
	drawn  map[string]drawing
}

// drawing is a block that was drawn before.
type drawing struct {
	state string
	lines []string
}

func (s *Screen) Resize(width, height int) {
	s.width, s.height = width, height
	s.drawn = nil
}

func (s *Screen) Take(u Update) { s.change(func() { s.Conversation.Take(u) }) }

func (s *Screen) Finished(r Result) { s.change(func() { s.Conversation.Finished(r) }) }

// change changes the conversation. What is scrolled up stays in its place, and what the person was typing is put aside
// while a question waits, so that it does not become the answer.
func (s *Screen) change(f func()) {
	before := 0
	if s.scroll > 0 {
		before = len(s.timeline())
	}
	f()
	if s.scroll > 0 {
		s.scroll = max(0, s.scroll+len(s.timeline())-before)
	}
	asked := ""
	if cb, _, ok := s.Question(); ok {
		asked = cb.GetCallbackId()
	}
	switch {
	case asked == s.asked:
		return
	case s.asked == "":
		s.draft = s.input.String()
		s.input.set("")
	case asked == "":
		s.input.set(s.draft)
		s.draft = ""
	default:
		s.input.set("")
	}
	s.asked, s.problem = asked, ""
}

func (s *Screen) Paste(text string) {
	s.Typed()
	s.input.insert(text)
}

// Key takes a key by its name, with the text that it types.
func (s *Screen) Key(name, text string) []Effect {
	if name == "ctrl+c" {
		s.problem = ""
		return s.Interrupt()
	}
	s.Typed()
	switch name {
	case "enter":
		return s.submit(false)
	case "tab":
		return s.submit(true)
	case "ctrl+d":
		if s.input.String() == "" {
			return []Effect{Leave{}}
		}
		s.input.key("delete")
	case "pgup", "pgdown", "ctrl+home", "ctrl+end":
		s.scrollBy(name)
	case "ctrl+o":
		s.whole = !s.whole
		s.drawn = nil
	case "esc":
		s.scroll, s.problem = 0, ""
	case "up", "ctrl+p":
		s.input.set(s.history.older(s.input.String()))
	case "down", "ctrl+n":
		s.input.set(s.history.newer(s.input.String()))
	default:
		if !s.input.key(name) && text != "" {
			s.input.insert(text)
		}
	}
	return nil
}

// scrollUp scrolls the timeline up by a number of lines.
func (s *Screen) scrollUp(lines int) {
	s.scroll = max(0, min(s.scroll+lines, len(s.timeline())-s.room()))
}

func (s *Screen) scrollBy(key string) {
	page := max(1, s.room()-1)
	switch key {
	case "pgup":
		s.scrollUp(page)
	case "pgdown":
		s.scrollUp(-page)
	case "ctrl+home":
		s.scrollUp(len(s.timeline()))
	default:
		s.scroll = 0
	}
}

// submit takes the input. One that is not taken stays, to be corrected.
func (s *Screen) submit(atOnce bool) []Effect {
	text := s.input.String()
	asked := s.asked
	var effects []Effect
	var err error
	s.change(func() { effects, err = s.Submit(text, atOnce) })
	if err != nil {
		s.problem = err.Error()
		return nil
	}
	if (asked == "" || atOnce) && s.history.add(text) {
		effects = append([]Effect{Keep{text}}, effects...)
	}
	if s.asked == asked { // otherwise the input is another one by now
		s.input.set("")
	}
	s.problem, s.scroll = "", 0
	return effects
}

// unsentText is what the person has typed that has not reached the server; empty for nothing.
func (s *Screen) unsentText() string {
	var text strings.Builder
	for _, one := range append(slices.Clone(s.unsent), s.draft, s.input.String()) {
		if strings.TrimSpace(one) != "" {
			text.WriteString("Not sent:\n" + terminal.Clean(one) + "\n")
		}
	}
	return text.String()
}

func (s *Screen) timeline() []string {
	if s.drawn == nil {
		s.drawn = map[string]drawing{}
	}
	form := shape{width: max(s.width, 1), whole: s.whole}
	var lines []string
	add := func(block []string) {
		if len(block) > 0 {
			lines = append(append(lines, block...), "")
		}
	}
	notes := s.Notes
	for i, item := range s.View.Items {
		for len(notes) > 0 && notes[0].After <= i {
			add(form.note(notes[0].Level, notes[0].Text))
			notes = notes[1:]
		}
		add(s.block(form, item))
	}
	for _, n := range notes {
		add(form.note(n.Level, n.Text))
	}
	for _, p := range s.Queued {
		add(form.prefixed(faint, "› ", p.Text+" (queued)"))
	}
	if _, q, ok := s.Question(); ok {
		add(form.question(q, len(s.View.Pending)))
	}
	return lines
}

// block draws an item, unless it was drawn in this state before.
func (s *Screen) block(form shape, item view.Item) []string {
	key, state := keyOf(item), stateOf(item)
	if known, ok := s.drawn[key]; ok && known.state == state {
		return known.lines
	}
	lines := form.block(item)
	s.drawn[key] = drawing{state, lines}
	return lines
}

// stateOf differs between two states of an item that are drawn differently: texts only grow, and end with a state.
func stateOf(item view.Item) string {
	switch i := item.(type) {
	case view.User:
		return fmt.Sprint(i.Lost)
	case view.Message:
		return fmt.Sprint(len(i.Text), i.Streaming)
	case view.Reasoning:
		return fmt.Sprint(len(i.Text), i.Streaming)
	case view.Tool:
		return fmt.Sprint(i.State, len(i.ArgumentsJSON), len(i.Output), len(i.Detail), i.Progress, len(i.Error))
	}
	return ""
}

// inputRows are the rows of the input that fit, and the cell of the cursor in them.
func (s *Screen) inputRows() (rows []string, x, y int) {
	const prompt = 2
	rows, x, y = s.input.rows(max(s.width-prompt, 1))
	if most := max(1, s.height/3); len(rows) > most {
		first := max(0, min(y-most+1, len(rows)-most))
		rows, y = rows[first:first+most], y-first
	}
	for i := range rows {
		mark := "  "
		if i == 0 {
			mark = "> "
		}
		rows[i] = mark + rows[i]
	}
	return rows, x + prompt, y
}

// room is how many lines the timeline has: all but the head, the state, and the input.
func (s *Screen) room() int {
	rows, _, _ := s.inputRows()
	return max(0, s.height-2-len(rows))
}

// Render draws the screen, in exactly the lines of the terminal, and returns the cell of the cursor.
func (s *Screen) Render() (content string, x, y int) {
	if s.width <= 0 || s.height <= 0 {
		return "", 0, 0
	}
	rows, x, y := s.inputRows()
	room := s.room()
	lines := s.timeline()
	s.scroll = max(0, min(s.scroll, len(lines)-room))
	lines = lines[:len(lines)-s.scroll]
	if len(lines) > room {
		lines = lines[len(lines)-room:]
	}
	screen := append([]string{s.head()}, lines...)
	for len(screen) < 1+room {
		screen = append(screen, "")
	}
	screen = append(screen, s.state())
	y += len(screen)
	screen = append(screen, rows...)
	if over := len(screen) - s.height; over > 0 { // a terminal of a few lines: the input is what counts
		screen, y = screen[over:], y-over
	}
	for i, line := range screen {
		screen[i] = terminal.Cut(line, s.width)
	}
	return strings.Join(screen, "\n"), min(x, s.width-1), max(y, 0)
}

// head is the first line: title, model and id.
func (s *Screen) head() string {
	title := terminal.CleanLine(s.View.Title)
	if title == "" {
		title = "New conversation"
	}
	parts := []string{}
	if model := terminal.CleanLine(s.View.Model); model != "" {
		parts = append(parts, model)
	}
	if used, limit := s.View.Usage.ContextTokens, s.View.Usage.ContextLimit; limit > 0 {
		parts = append(parts, fmt.Sprintf("context %d%%", used*100/limit))
	}
	const idLength = 8 // the whole id is printed at the end
	right := strings.Join(append(parts, s.ID[:min(idLength, len(s.ID))]), " · ")
	rest := s.width - terminal.Width(right) - 2
	if rest < 8 {
		return faint.Render(terminal.Cut(right, s.width))
	}
	title = terminal.Cut(title, rest)
	return bold.Render(title) + strings.Repeat(" ", rest-terminal.Width(title)+2) + faint.Render(right)
}

// state is the line above the input.
func (s *Screen) state() string {
	style, text := faint, "Enter sends · Alt-Enter new line · /help · Ctrl-C twice leaves"
	_, _, asked := s.Question()
	switch {
	case s.problem != "":
		style, text = red, terminal.CleanLine(s.problem)
	case s.WillLeave() && s.IsBusy():
		style, text = yellow, "Aborting. Ctrl-C again leaves; the session goes on."
	case s.WillLeave():
		style, text = yellow, "Ctrl-C again leaves; the session goes on."
	case s.scroll > 0:
		text = fmt.Sprintf("%d lines below · PgDn, Esc to the end", s.scroll)
	case asked:
		style, text = yellow, "A question waits. Enter answers · Ctrl-C aborts the turn"
	case s.IsBusy():
		text = "Working"
		if intent := terminal.CleanLine(s.View.Turn.Intent); intent != "" {
			text = intent
		}
		style, text = cyan, text+" … Enter queues · Tab steers · Ctrl-C aborts"
	case s.isClosed():
		style, text = yellow, "The session is closed. Ctrl-C twice leaves."
	case !s.View.CaughtUp:
		text = "Loading …"
	}
	if n := len(s.Attached); n > 0 && s.problem == "" {
		text = fmt.Sprintf("Attached: %d · %s", n, text)
	}
	return style.Render(terminal.Cut(text, s.width))
}
