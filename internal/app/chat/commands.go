package chat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/clients/go/view"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
)

type command struct {
	name, arg, help string
	run             func(c *Conversation, arg string) ([]Effect, error)
}

// commands are all commands, in the order of /help.
func commands() []command {
	return []command{
		{"help", "", "list the commands", func(c *Conversation, _ string) ([]Effect, error) {
			c.note(view.Info, help())
			return nil, nil
		}},
		{"now", "TEXT", "steer the running turn with a prompt, instead of waiting for its end",
			func(c *Conversation, text string) ([]Effect, error) { return c.prompt(text, true), nil }},
		{"abort", "", "abort the running turn", one(func(string) Effect { return Abort{} })},
		{"attach", "[FILE]", "attach a file of this machine to the next prompt; without FILE, attach none", attach},
		{"files", "", "list the files that the session has changed, and those that it keeps",
			one(func(string) Effect { return ShowFiles{} })},
		{"model", "[ID]", "switch the model, or list the models", one(func(id string) Effect { return SetModel{id} })},
		{"usage", "", "tell what the session has used", one(func(string) Effect { return ShowUsage{} })},
		{"fork", "[NAME]", "copy the session with its history", one(func(name string) Effect { return Fork{name} })},
		{"share", "TENANT", "offer the session to another tenant", one(func(to string) Effect { return Share{to} })},
		{"quit", "", "leave; the session goes on", one(func(string) Effect { return Leave{} })},
	}
}

// one is a command with one effect.
func one(effect func(arg string) Effect) func(*Conversation, string) ([]Effect, error) {
	return func(_ *Conversation, arg string) ([]Effect, error) { return []Effect{effect(arg)}, nil }
}

// attach attaches a file to the next prompt. A file with quotation marks around it was dropped into the terminal.
func attach(c *Conversation, path string) ([]Effect, error) {
	if path == "" {
		c.Attached = nil
		c.note(view.Info, "The next prompt has no files.")
		return nil, nil
	}
	if last := len(path) - 1; last > 0 && path[0] == path[last] && strings.ContainsRune(`'"`, rune(path[0])) {
		path = path[1:last]
	}
	c.Attached = append(c.Attached, path)
	return []Effect{CheckFile{path}}, nil
}

func help() string {
	lines := []string{"Commands:"}
	for _, c := range commands() {
		lines = append(lines, fmt.Sprintf("  %-14s  %s", strings.TrimSpace("/"+c.name+" "+c.arg), c.help))
	}
	return strings.Join(append(lines, "A prompt that begins with a slash is typed with two."), "\n")
}

// slashed is a line with a command: a path such as /etc/hosts is none.
var slashed = regexp.MustCompile(`(?s)^/([a-z]+)(?:\s+(.*))?$`)

func commandIn(line string) (name, arg string, ok bool) {
	found := slashed.FindStringSubmatch(line)
	if found == nil {
		return "", "", false
	}
	return found[1], strings.TrimSpace(found[2]), true
}

// guess says what to type instead of a command that does not exist.
func guess(name string, all []command) string {
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	if near := setting.Misspelt(name, names); near != "" {
		return "did you mean /" + near + "?"
	}
	return "/help lists them"
}

func (c *Conversation) command(name, arg string) ([]Effect, error) {
	all := commands()
	i := slices.IndexFunc(all, func(cmd command) bool { return cmd.name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("there is no command /%s; %s", name, guess(name, all))
	case arg == "" && all[i].arg != "" && !strings.HasPrefix(all[i].arg, "["):
		return nil, fmt.Errorf("/%s needs %s", name, all[i].arg)
	case arg != "" && all[i].arg == "":
		return nil, fmt.Errorf("/%s takes nothing, not %q", name, arg)
	}
	return all[i].run(c, arg)
}
