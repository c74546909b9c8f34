package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app/ask"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// Styles of the 16 colours of the terminal. No text depends on them.
var (
	bold   = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	red    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	green  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	yellow = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	cyan   = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

// resultLines is how many lines of a tool's result a card shows, unless it is to be whole.
const resultLines = 4

// shape is how blocks are drawn.
type shape struct {
	width int
	// Results of tools and reasoning are whole.
	whole bool
}

func (s shape) block(item view.Item) []string {
	switch i := item.(type) {
	case view.User:
		return s.user(i)
	case view.Message:
		return s.agent(i.AgentID, terminal.Markdown(i.Text, s.width))
	case view.Reasoning:
		return s.agent(i.AgentID, s.short(faint, "Thinking: "+i.Text))
	case view.Tool:
		return s.tool(i)
	case view.Notice:
		return s.note(i.Level, i.Text)
	case view.Gap:
		if isHarmless(i) {
			return nil
		}
		return s.note(view.Warning, "Events are missing here.")
	case view.Restart:
		return s.note(view.Warning, "The agent's process ended and was replaced: "+i.Cause)
	}
	return nil
}

// isHarmless reports whether only pieces of texts are missing, which the whole texts repeat.
func isHarmless(g view.Gap) bool { return g.Reason == bridgev1.GapReason_GAP_REASON_EPHEMERAL_LOST }

func promptText(u view.User) string {
	text := u.Text
	for _, a := range u.Attachments {
		kind := a.Kind
		if kind == "blob" { // the content of a file of the sender
			kind = "file"
		}
		text += "\n[" + strings.TrimSpace(kind+" "+a.Name) + "]"
	}
	return text
}

func (s shape) user(u view.User) []string {
	text := promptText(u)
	switch {
	case u.Lost:
		text += "\n(lost with the agent's process: send it again)"
	case u.Source != "":
		text = "(" + u.Source + ") " + text
	}
	return s.agent(u.AgentID, s.prefixed(bold, "› ", text))
}

// agent names the sub-agent of a block.
func (s shape) agent(id string, lines []string) []string {
	if id == "" {
		return lines
	}
	return append([]string{faint.Render(terminal.Cut("sub-agent "+terminal.CleanLine(id), s.width))}, lines...)
}

// prefixed wraps a text of others behind a prefix, with its other lines under it.
func (s shape) prefixed(style lipgloss.Style, prefix, text string) []string {
	indent := strings.Repeat(" ", terminal.Width(prefix))
	var lines []string
	for i, line := range terminal.Wrap(terminal.Clean(text), s.width-len(indent)) {
		if i == 0 {
			line = prefix + line
		} else {
			line = indent + line
		}
		lines = append(lines, style.Render(line))
	}
	return lines
}

// short is a text of which long ones show the end only.
func (s shape) short(style lipgloss.Style, text string) []string {
	lines := s.prefixed(style, "  ", strings.TrimRight(text, "\n "))
	if more := len(lines) - resultLines; more > 0 && !s.whole {
		lines = append([]string{faint.Render(terminal.Cut(fmt.Sprintf("  … %d lines more: Ctrl-O", more), s.width))},
			lines[more:]...)
	}
	return lines
}

// marks are the states of a tool call. Words say them too where colours do not.
var marks = map[view.ToolState]string{
	view.ToolStreaming: "○", view.ToolRequested: "○", view.ToolRunning: "◐", view.ToolCompleted: "✓", view.ToolFailed: "✗",
}

func (s shape) tool(t view.Tool) []string {
	style := cyan
	if t.State == view.ToolFailed {
		style = red
	}
	name := terminal.CleanLine(t.Name)
	head := terminal.Cut(marks[t.State]+" "+name, s.width)
	rest := s.width - terminal.Width(head) - 2
	line := style.Render(head)
	if arguments := Arguments(t.ArgumentsJSON); rest > 3 && arguments != "" {
		line += "  " + terminal.Cut(arguments, rest)
	}
	lines := []string{line}
	switch result := Outcome(t); {
	case result != "":
		lines = append(lines, s.short(faint, result)...)
	case t.Progress != "":
		lines = append(lines, s.prefixed(faint, "  ", terminal.CleanLine(t.Progress))...)
	}
	return s.agent(t.AgentID, lines)
}

// Outcome is the result of a tool call, or its error.
func Outcome(t view.Tool) string {
	if t.Error != "" {
		return strings.TrimSpace(t.Error)
	}
	if t.Detail != "" {
		return strings.Trim(t.Detail, "\n")
	}
	return strings.Trim(t.Output, "\n")
}

// Arguments are the arguments of a tool call in a clean line: the command first, others as name=value.
func Arguments(text string) string {
	decoder := json.NewDecoder(strings.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return terminal.CleanLine(text)
	}
	var command string
	var others []string
	for decoder.More() {
		name, err := decoder.Token()
		var value any
		if err != nil || decoder.Decode(&value) != nil { // still streaming
			break
		}
		short, ok := value.(string)
		if !ok {
			encoded, _ := json.Marshal(value) // it was decoded a moment ago
			short = string(encoded)
		}
		switch name {
		case "command":
			command = short
		case "description": // of the command, for people; the command says more
		default:
			others = append(others, fmt.Sprintf("%v=%s", name, short))
		}
	}
	return terminal.CleanLine(command + " " + strings.Join(others, " "))
}

func (s shape) note(level view.Level, text string) []string {
	switch level {
	case view.Error:
		return s.prefixed(red, "! ", text)
	case view.Warning:
		return s.prefixed(yellow, "! ", text)
	default:
		return s.prefixed(faint, "· ", text)
	}
}

// question is a question with all that its answer depends on.
func (s shape) question(q ask.Question, waiting int) []string {
	inner := shape{width: s.width - 2, whole: true}
	title := q.Title
	if waiting > 1 {
		title += fmt.Sprintf(" (%d more wait)", waiting-1)
	}
	lines := inner.prefixed(bold, "? ", title)
	if q.Detail != "" {
		for _, line := range terminal.Wrap(terminal.Clean(strings.Trim(q.Detail, "\n")), inner.width-2) {
			lines = append(lines, "  "+diffStyle(q.IsDiff, line).Render(line))
		}
	}
	for _, n := range q.Notes {
		lines = append(lines, inner.prefixed(faint, "  ", n)...)
	}
	for i, choice := range q.Choices {
		lines = append(lines, inner.prefixed(lipgloss.NewStyle(), fmt.Sprintf("  %d. ", i+1), choice)...)
	}
	for _, f := range q.Fields {
		lines = append(lines, inner.prefixed(lipgloss.NewStyle(), "  - ", f.Line())...)
	}
	lines = append(lines, inner.prefixed(cyan, "  ", q.Hint())...)
	for i := range lines {
		lines[i] = yellow.Render("┃") + " " + lines[i]
	}
	return lines
}

func diffStyle(isDiff bool, line string) lipgloss.Style {
	switch {
	case !isDiff:
	case strings.HasPrefix(line, "+"):
		return green
	case strings.HasPrefix(line, "-"):
		return red
	case strings.HasPrefix(line, "@@"):
		return cyan
	}
	return lipgloss.NewStyle()
}
