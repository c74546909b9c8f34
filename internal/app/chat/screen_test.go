package chat

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/terminal"
)

// plainLines is a screen without its styles.
func plainLines(s *Screen) []string {
	content, _, _ := s.Render()
	lines := strings.Split(ansi.Strip(content), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return lines
}

func key(k string) view.Head { return view.Head{Key: k} }

// talk is a view with an item of each kind.
func talk() view.View {
	v := asking("a")
	v.Title, v.Model = "Tidy\x1b]0;mine\x07 up", "gpt-5"
	v.Usage.ContextTokens, v.Usage.ContextLimit = 12, 100
	v.Items = []view.Item{
		prompt("u", "Tidy up\nthe folder"),
		view.Reasoning{Head: key("r"), Text: "1\n2\n3\n4\n5\n6"},
		view.Message{Head: key("m"), Text: "I **will** \u202eylno kool"},
		view.Tool{Head: key("t"), Name: "bash", ArgumentsJSON: `{"command":"ls\n-la","description":"x","shellId":1}`,
			State: view.ToolCompleted, Output: "1\n2\n3\n\x1b[2J4\n5\n6\n"},
		view.Tool{Head: key("f"), Name: "view", ArgumentsJSON: `{"path":"/a/long/path/that/goes/on/and/on/and/on/and/on/and/on/and/on/file"}`,
			State: view.ToolFailed, Error: "no such file"},
		view.Notice{Head: key("n"), Level: view.Warning, Text: "be careful"},
		view.Gap{Head: key("g")},
		view.Restart{Head: key("x"), Cause: "it crashed"},
	}
	return v
}

func TestScreen(t *testing.T) {
	t.Parallel()
	s := &Screen{ID: "0123456789abcdef"}
	s.Resize(60, 44)
	s.Take(Update{View: talk()})
	want := []string{
		"Tidy␛]0;mine␇ up              gpt-5 · context 12% · 01234567",
		"› Tidy up",
		"  the folder",
		"",
		"  … 2 lines more: Ctrl-O",
		"  3",
		"  4",
		"  5",
		"  6",
		"",
		"I will <U+202E>ylno kool",
		"",
		"✓ bash  ls -la shellId=1",
		"  … 2 lines more: Ctrl-O",
		"  3",
		"  ␛[2J4",
		"  5",
		"  6",
		"",
		"✗ view  path=/a/long/path/that/goes/on/and/on/and/on/and/on…",
		"  no such file",
		"",
		"! be careful",
		"",
		"! Events are missing here.",
		"",
		"! The agent's process ended and was replaced: it crashed",
		"",
		"┃ ? Run a command",
		"┃   date",
		"┃   y approves once, s for the session, n refuses and ends",
		"┃   the turn, n WHY refuses and tells the agent why",
		"", "", "", "", "", "", "", "", "", "",
		"A question waits. Enter answers · Ctrl-C aborts the turn",
		">",
	}
	if got := plainLines(s); !slices.Equal(got, want) {
		t.Errorf("the screen:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.Key("ctrl+o", "")
	if all := strings.Join(plainLines(s), "\n"); !strings.Contains(all, "Thinking: 1\n  2\n  3") {
		t.Errorf("not whole:\n%s", all)
	}
}

// Files that wait for the next prompt are in the line of state, and in the prompt then.
func TestAttached(t *testing.T) {
	t.Parallel()
	s := &Screen{Conversation: Conversation{Attached: []string{"a", "b"}}}
	s.Resize(80, 7)
	sent := prompt("u", "What is it?")
	sent.Attachments = []view.Attachment{{Kind: "blob", Name: "a\x1b[2J"}, {Kind: "directory", Name: "src"}}
	s.Take(Update{View: view.View{CaughtUp: true, Items: []view.Item{sent}}})
	want := []string{"New conversation", "› What is it?", "  [file a␛[2J]", "  [directory src]", ""}
	got := plainLines(s)
	got[0] = strings.TrimRight(got[0], " ·")
	if want = append(want, "Attached: 2 · Enter sends · Alt-Enter new line · /help · Ctrl-C twice leaves", ">"); !slices.Equal(got, want) {
		t.Errorf("the screen:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A screen of any size has its lines, none is too long, and the cursor is on it. After a change of the size it is the
// same as one that had the size from the beginning.
func TestSizes(t *testing.T) {
	t.Parallel()
	changing := &Screen{ID: "s"}
	changing.Take(Update{View: talk()})
	changing.Paste(strings.Repeat("long 漢字 input\n", 9))
	for _, width := range []int{1, 2, 3, 7, 20, 80, 160} {
		for _, height := range []int{1, 2, 3, 5, 24, 50} {
			changing.Resize(width, height)
			content, x, y := changing.Render()
			lines := strings.Split(content, "\n")
			if len(lines) != height || x < 0 || x >= width || y < 0 || y >= height {
				t.Errorf("%d×%d: %d lines, the cursor is at %d, %d", width, height, len(lines), x, y)
			}
			for _, line := range lines {
				if terminal.Width(line) > width {
					t.Errorf("%d×%d: %q is too long", width, height, line)
				}
			}
			fresh := &Screen{ID: "s"}
			fresh.Resize(width, height)
			fresh.Take(Update{View: talk()})
			fresh.Paste(strings.Repeat("long 漢字 input\n", 9))
			if got, want := plainLines(changing), plainLines(fresh); !slices.Equal(got, want) {
				t.Errorf("%d×%d after a change:\n%s\nwant:\n%s", width, height, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
	}
	if content, _, _ := new(Screen).Render(); content != "" {
		t.Errorf("a screen without a size: %q", content)
	}
}

// What a person was typing does not become the answer to a question that comes up meanwhile.
func TestDraft(t *testing.T) {
	t.Parallel()
	s := &Screen{}
	s.Resize(80, 24)
	s.Take(Update{View: running()})
	s.Paste("y")
	s.Take(Update{View: asking("a")})
	if effects := s.Key("enter", ""); len(effects) > 0 || s.input.String() != "" {
		t.Fatalf("effects %v, input %q", effects, s.input.String())
	}
	s.Paste("what?")
	if effects := s.Key("enter", ""); len(effects) > 0 || s.input.String() != "what?" || s.problem == "" {
		t.Fatalf("no decision: effects %v, input %q, problem %q", effects, s.input.String(), s.problem)
	}
	s.Key("ctrl+u", "")
	s.Paste("n")
	if effects := s.Key("enter", ""); len(effects) != 1 || s.input.String() != "y" {
		t.Errorf("effects %v, input %q, want the draft", effects, s.input.String())
	}
}

// What is scrolled up stays where it is while text streams.
func TestScroll(t *testing.T) {
	t.Parallel()
	s := &Screen{}
	s.Resize(40, 10)
	text := func(n int) view.View {
		v := running()
		for i := range n {
			v.Items = append(v.Items, view.Message{Head: key(fmt.Sprint(i)), Text: fmt.Sprintf("line %d", i)})
		}
		return v
	}
	s.Take(Update{View: text(50)})
	s.Key("pgup", "")
	before := plainLines(s)
	s.Take(Update{View: text(90)})
	if after := plainLines(s); !slices.Equal(before[1:8], after[1:8]) {
		t.Errorf("before %q, after %q", before, after)
	}
	s.Key("ctrl+home", "")
	if got := plainLines(s); got[1] != "line 0" {
		t.Errorf("at the beginning: %q", got)
	}
	s.Key("esc", "")
	if got := strings.Join(plainLines(s), "\n"); !strings.Contains(got, "line 89") {
		t.Errorf("at the end: %s", got)
	}
}

func TestEditor(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		keys []string
		want string
	}{
		"backspace":        {"añ👩\u200d💻", []string{"backspace"}, "añ"},
		"in the middle":    {"abc", []string{"left", "left", "backspace"}, "bc"},
		"beyond the ends":  {"a", []string{"left", "left", "backspace", "delete", "delete", "right"}, ""},
		"line":             {"one\ntwo three", []string{"ctrl+u"}, "one\n"},
		"rest of the line": {"one\ntwo", []string{"home", "ctrl+k"}, "one\n"},
		"word":             {"one two ", []string{"ctrl+w"}, "one "},
		"new line":         {"a", []string{"alt+enter"}, "a\n"},
		"pasted":           {"a\r\nb\rc\td\x1b[31m", nil, "a\nb\nc    d␛[31m"},
	} {
		var e editor
		e.insert(tc.text)
		for _, k := range tc.keys {
			if !e.key(k) {
				t.Errorf("%s: %s means nothing", name, k)
			}
		}
		if e.String() != tc.want {
			t.Errorf("%s: %q, want %q", name, e.String(), tc.want)
		}
	}
}

// A question of a file's change is shown as a diff, whole.
func TestDiff(t *testing.T) {
	t.Parallel()
	v := running()
	v.Pending = []*bridgev1.Callback{{CallbackId: "a", Request: &bridgev1.Callback_Permission{
		Permission: &cliv1.PermissionRequestedData{PermissionRequest: &cliv1.PermissionRequest{
			Variant: &cliv1.PermissionRequest_Write{Write: &cliv1.PermissionRequestWrite{FileName: "a", Diff: "@@ -1 +1 @@\n-old\n+new\n same"}},
		}},
	}}}
	s := &Screen{}
	s.Resize(40, 20)
	s.Take(Update{View: v})
	content, _, _ := s.Render()
	for _, want := range []string{cyan.Render("@@ -1 +1 @@"), red.Render("-old"), green.Render("+new"), " same"} {
		if !strings.Contains(content, want) {
			t.Errorf("%q is missing in %q", want, content)
		}
	}
}
