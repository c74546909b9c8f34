package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	"github.com/copilot-grpc/copilot-grpc/internal/app/ask"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// lines is a conversation in lines, without colours and without moving the cursor: for screen readers, pipes and slow
// connections. What was written is never changed.
type lines struct {
	Conversation
	printer printer
	// A person types at a terminal, which shows what they type.
	isPerson bool
	// Prompts that the terminal shows already.
	typed []string
	// The callback that was asked last.
	asked string
	// How many notes, and how many items from the first on, are written to their end.
	notes, items int
	// Effects under way.
	running int
	left    bool
}

// errInputEnded ends a chat of a script that answers too few questions.
var errInputEnded = errors.New("the input ended while a question waits")

// Plain has a conversation in lines, until the input ends and the agent is at rest, or the person leaves, or ctx ends, or
// the server stays away.
// Each value of interrupts is a Ctrl-C.
//
// A script's lines are taken one at a time: the next one when the turn has ended or asks something. A person at a
// terminal is not waited for: what they type while a turn runs is queued.
func Plain(ctx context.Context, l *Link, in io.Reader, out io.Writer, isPerson bool, interrupts <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &lines{printer: printer{out: out, written: map[string]string{}}, isPerson: isPerson}
	c.Attached = l.options.Files
	input, results := terminal.Lines(ctx, in), make(chan Result)
	do := func(effects []Effect) {
		for _, e := range effects {
			c.left = c.left || e == Effect(Leave{})
			c.running++
			go func() {
				select {
				case results <- l.Do(ctx, e):
				case <-ctx.Done():
				}
			}()
		}
	}
	for !c.left {
		next := input
		if !c.isReady() {
			next = nil
		}
		select {
		case line, ok := <-next:
			if !ok {
				input = nil
				break
			}
			do(c.line(line))
		case <-l.Changed():
			u := l.Latest()
			if u.Lost != nil {
				c.printer.line("")
				return u.Lost
			}
			c.Take(u)
		case r := <-results:
			c.running--
			c.Finished(r)
		case <-interrupts:
			do(c.interrupt())
		case <-ctx.Done():
			c.left = true
		}
		c.print()
		if input == nil {
			if done, err := c.isOver(); done {
				return err
			}
		}
		if c.printer.err != nil {
			return c.printer.err
		}
	}
	c.printer.line("")
	return c.printer.err
}

// isReady reports whether the next line may be taken.
func (c *lines) isReady() bool {
	_, _, asked := c.Question()
	return (c.View.CaughtUp || c.isClosed()) && (c.isPerson || c.running == 0 && (asked || !c.IsBusy()))
}

// isOver reports, after the end of the input, whether there is nothing more to wait for.
func (c *lines) isOver() (bool, error) {
	if _, _, asked := c.Question(); asked && !c.isPerson {
		c.printer.line("")
		return true, errInputEnded
	}
	if c.isPerson || c.running == 0 && !c.IsBusy() {
		c.printer.line("")
		return true, c.printer.err
	}
	return false, nil
}

func (c *lines) interrupt() []Effect {
	effects := c.Interrupt()
	switch {
	case len(effects) == 0:
		c.printer.line("Ctrl-C again leaves; the session goes on.")
	case effects[0] == Effect(Abort{}):
		c.printer.line("Aborting. Ctrl-C again leaves; the session goes on.")
	}
	return effects
}

func (c *lines) line(typed terminal.Line) []Effect {
	effects, err := []Effect(nil), typed.Err
	if err == nil {
		effects, err = c.Submit(typed.Text, false)
	}
	if err != nil {
		c.printer.line("Error: " + terminal.Clean(err.Error()))
	}
	for _, e := range effects {
		if sent, ok := e.(Send); ok && c.isPerson {
			c.typed = append(c.typed, sent.Text)
		}
	}
	return effects
}

func (c *lines) print() {
	for i, item := range c.View.Items[c.items:] {
		c.printNotes(c.items + i)
		if user, ok := item.(view.User); ok && len(c.typed) > 0 && user.Text == c.typed[0] {
			c.typed = c.typed[1:]
			c.printer.written[keyOf(item)] = "typed"
		}
		c.printer.item(item)
	}
	c.printNotes(len(c.View.Items))
	for c.items < len(c.View.Items) && isFinal(c.View.Items[c.items]) {
		delete(c.printer.written, keyOf(c.View.Items[c.items]))
		c.items++
	}
	cb, q, ok := c.Question()
	if !ok {
		c.asked = ""
		return
	}
	if c.asked != cb.GetCallbackId() {
		c.asked = cb.GetCallbackId()
		c.printer.question(q)
	}
}

// isFinal reports whether an item will not change any more.
func isFinal(item view.Item) bool {
	switch i := item.(type) {
	case view.Message:
		return !i.Streaming
	case view.Reasoning:
		return !i.Streaming
	case view.Tool:
		return i.State == view.ToolCompleted || i.State == view.ToolFailed
	}
	return true
}

// printNotes writes the notes that come before an item.
func (c *lines) printNotes(before int) {
	for c.notes < len(c.Notes) && c.Notes[c.notes].After <= before {
		c.printer.line(levels[c.Notes[c.notes].Level] + terminal.Clean(c.Notes[c.notes].Text))
		c.notes++
	}
}

// levels are what lines of a level begin with.
var levels = map[view.Level]string{view.Info: "", view.Warning: "Warning: ", view.Error: "Error: "}

// printer writes items, each part once.
type printer struct {
	out io.Writer
	err error
	// What was written of each item, by key: of a text its clean beginning, of a tool its state.
	written map[string]string
	// The key of the message whose line is open; empty for none.
	open string
}

func (p *printer) write(text string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.out, text)
	}
}

// line writes a line of its own, after the open one.
func (p *printer) line(text string) {
	if p.open != "" {
		p.write("\n")
		p.open = ""
	}
	if text != "" {
		p.write(text + "\n")
	}
}

func (p *printer) item(item view.Item) {
	key := keyOf(item)
	before, known := p.written[key]
	now := before
	switch i := item.(type) {
	case view.Message:
		now = p.message(key, i, before)
	case view.Tool:
		now = p.tool(i, before)
	case view.Reasoning: // it is long, and read aloud
	default:
		if known {
			return
		}
		now = "written"
		p.line(inWords(item))
	}
	p.written[key] = now
}

// keyOf is unique among all items.
func keyOf(item view.Item) string { return fmt.Sprintf("%T %s", item, view.KeyOf(item)) }

// inWords is an item that does not change.
func inWords(item view.Item) string {
	switch i := item.(type) {
	case view.User:
		who := "You: "
		if i.AgentID != "" {
			who = "To sub-agent " + terminal.CleanLine(i.AgentID) + ": "
		}
		return who + terminal.Clean(promptText(i))
	case view.Notice:
		return levels[i.Level] + terminal.Clean(i.Text)
	case view.Gap:
		if isHarmless(i) {
			return ""
		}
		return "Warning: events are missing here."
	case view.Restart:
		return "Warning: the agent's process ended and was replaced: " + terminal.CleanLine(i.Cause)
	}
	return ""
}

// message writes the new text of a message, which continues its line. A sub-agent's is written at its end, as the
// texts of several may come at once.
func (p *printer) message(key string, m view.Message, before string) string {
	text := m.Text
	if m.Streaming {
		if m.AgentID != "" {
			return before
		}
		text = strings.TrimSuffix(text, "\r") // it may be the first half of a line's end
	}
	text = terminal.Clean(text)
	rest, grown := strings.CutPrefix(text, before)
	if !grown {
		p.line("")
		rest = text
	}
	if rest == "" {
		if !m.Streaming && p.open == key {
			p.line("")
		}
		return text
	}
	if p.open != key {
		p.line("")
		if m.AgentID != "" {
			p.write("Sub-agent " + terminal.CleanLine(m.AgentID) + ": ")
		} else {
			p.write("Agent: ")
		}
		p.open = key
	}
	p.write(rest)
	if !m.Streaming {
		p.line("")
	}
	return text
}

// tool writes the call of a tool when it begins, and its result.
func (p *printer) tool(t view.Tool, before string) string {
	name := terminal.CleanLine(t.Name)
	if t.State != view.ToolStreaming && before == "" {
		p.line(strings.TrimSpace("Tool " + name + ": " + Arguments(t.ArgumentsJSON)))
		before = string(view.ToolRunning)
	}
	if t.State != view.ToolCompleted && t.State != view.ToolFailed || before == string(t.State) {
		return before
	}
	word := "Result of "
	if t.State == view.ToolFailed {
		word = "Failure of "
	}
	result := terminal.Clean(Outcome(t))
	if strings.Contains(result, "\n") {
		result = "\n" + result
	}
	p.line(word + name + ": " + result)
	return string(t.State)
}

// question writes a question with all that its answer depends on.
func (p *printer) question(q ask.Question) {
	p.line("Question: " + terminal.Clean(q.Title))
	if q.Detail != "" {
		p.line(terminal.Clean(strings.Trim(q.Detail, "\n")))
	}
	for _, n := range q.Notes {
		p.line(terminal.Clean(n))
	}
	for i, choice := range q.Choices {
		p.line(fmt.Sprintf("%d. %s", i+1, terminal.Clean(choice)))
	}
	for _, f := range q.Fields {
		p.line("- " + terminal.Clean(f.Line()))
	}
	p.line("Answer: " + terminal.Clean(q.Hint()))
}
