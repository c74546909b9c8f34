package chat

import (
	"errors"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// written is what a conversation in lines writes after each view.
func written(isPerson bool, typed string, views ...view.View) string {
	var out strings.Builder
	c := &lines{printer: printer{out: &out, written: map[string]string{}}, isPerson: isPerson}
	if typed != "" {
		c.line(terminal.Line{Text: typed})
	}
	for _, v := range views {
		c.Take(Update{View: v})
		c.print()
	}
	return out.String()
}

func TestLines(t *testing.T) {
	t.Parallel()
	message := func(text string, streaming bool) view.Message {
		return view.Message{Head: key("m"), Text: text, Streaming: streaming}
	}
	other := view.Notice{Head: key("n"), Level: view.Warning, Text: "careful\x1b[2J"}
	tool := func(state view.ToolState, output string) view.Tool {
		return view.Tool{Head: key("t"), Name: "bash", ArgumentsJSON: `{"command":"date"}`, State: state, Output: output}
	}
	of := func(v view.Message, agent string) view.Message { v.AgentID = agent; return v }
	for name, tc := range map[string]struct {
		isPerson bool
		typed    string
		views    []view.View
		want     string
	}{
		"prompt": {false, "", []view.View{running(prompt("u", "Hi"))}, "You: Hi\n"},
		"prompt with a file": {false, "", []view.View{running(view.User{Head: key("u"), Text: "Hi",
			Attachments: []view.Attachment{{Kind: "blob", Name: "a.txt"}}})}, "You: Hi\n[file a.txt]\n"},
		"typed prompt":    {true, "Hi", []view.View{running(prompt("u", "Hi"))}, ""},
		"another's":       {true, "Hi", []view.View{running(prompt("u", "Ho"), prompt("v", "Hi"))}, "You: Ho\n"},
		"twice the same":  {false, "", []view.View{running(prompt("u", "Hi")), running(prompt("u", "Hi"))}, "You: Hi\n"},
		"streams":         {false, "", []view.View{running(message("a", true)), running(message("ab\n", true)), running(message("ab\nc", false))}, "Agent: ab\nc\n"},
		"half a line end": {false, "", []view.View{running(message("a\r", true)), running(message("a\r\nb", false))}, "Agent: a\nb\n"},
		"changed":         {false, "", []view.View{running(message("ab", true)), running(message("xy", false))}, "Agent: ab\nAgent: xy\n"},
		"interrupted": {false, "", []view.View{running(message("a", true)), running(message("a", true), other),
			running(message("ab", false), other)}, "Agent: a\nWarning: careful␛[2J\nAgent: b\n"},
		"empty": {false, "", []view.View{running(message("", true)), running(message("", false))}, ""},
		"sub-agent": {false, "", []view.View{running(of(message("a", true), "x")), running(of(message("ab", false), "x"))},
			"Sub-agent x: ab\n"},
		"tool": {false, "", []view.View{running(tool(view.ToolStreaming, "")), running(tool(view.ToolRunning, "")),
			running(tool(view.ToolRunning, "1")), running(tool(view.ToolCompleted, "1\n2\n"))},
			"Tool bash: date\nResult of bash: \n1\n2\n"},
		"tool at once": {false, "", []view.View{running(tool(view.ToolFailed, "no"))}, "Tool bash: date\nFailure of bash: no\n"},
		"question": {false, "", []view.View{asking("a"), asking("a"), running()},
			"Question: Run a command\ndate\nAnswer: y approves once, s for the session, n refuses and ends the turn, n WHY refuses and tells the agent why\n"},
	} {
		if got := written(tc.isPerson, tc.typed, tc.views...); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A line that is too long is told of, and nothing is sent.
func TestLineTooLong(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	c := &lines{printer: printer{out: &out}}
	if effects := c.line(terminal.Line{Err: terminal.ErrLineTooLong}); len(effects) > 0 {
		t.Errorf("effects %v", effects)
	}
	if want := "Error: " + terminal.ErrLineTooLong.Error() + "\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// An output without a reader ends the conversation.
func TestLinesWithoutReader(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	p := printer{out: failing{gone}}
	p.line("a")
	p.line("b")
	if !errors.Is(p.err, gone) {
		t.Errorf("error %v", p.err)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }
