package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// script is what the model plays. Nobody opens the gate.
const script = `rules:
- when: {user_regex: 'run ([a-z ]+)'}
  reply: [{tool_call: {name: bash, arguments: {command: "{{match.1}}", description: "run it"}}}]
- when: {tool_result: {name: bash}}
  reply: [{text: "It came to: {{tool_result}}"}]
- when: {user_regex: 'write (\S+)'}
  reply: [{tool_call: {name: create, arguments: {path: "{{match.1}}", file_text: "one\ntwo\n"}}}]
- when: {tool_result: {name: create}}
  reply: [{text: "It is written."}]
- when: {user: ask me, tools: [ask_user]}
  reply: [{tool_call: {name: ask_user, arguments: {question: "Which colour?", choices: [red, blue]}}}]
- when: {tool_result: {name: ask_user}}
  reply: [{text: "You like it: {{tool_result}}"}]
- when: {user: slowly}
  reply: [{text: "First. "}, {wait_for: gate}]
- when: {user: evil}
  reply: [{text: "before \e]2;stolen\a\e[2J\e[31m after \u202edne"}]
- when: {user: many}
  reply: [{text: "line {{n}} of **many**\n\n", repeat: 150, delay: 5ms}, {text: "the end"}]
default: {reply: [{text: "You said: {{user}}"}]}
`

// person is somebody at a shell in a terminal, with a server of their own.
type person struct {
	*harness.Daemon
	// dir has the person's files, and the socket of tmux.
	dir string
}

// newServer starts a server with the script.
func newServer(t *testing.T) *harness.Daemon {
	t.Helper()
	model := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(model, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return harness.NewDaemon(harness.NewScripted(t), "--offline-model", model)
}

// sits opens a terminal of a size for a person of the server.
func sits(d *harness.Daemon, width, height int) *person {
	t := d.T
	t.Helper()
	harness.Installed(t, "tmux", "")
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tty") // short: the socket is in it
	if err != nil {
		t.Fatal(err)
	}
	p := &person{d, dir}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen at the end:\n%s", p.screen())
		}
		_ = p.command("kill-server").Run()
		_ = os.RemoveAll(dir)
	})
	p.tmux("new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), "-c", dir,
		"env", "PS1=@ ", "PATH="+dir+":"+os.Getenv("PATH"), "COPILOT_GRPC_TARGET=unix:"+filepath.Join(d.Root, "s"),
		"XDG_STATE_HOME="+filepath.Join(dir, "state"), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"),
		"bash", "--norc", "--noprofile")
	for _, name := range []string{"copilot-grpc", "bin/copilot-grpc"} { // as it is installed, and as it is built
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(program, path)); err != nil {
			t.Fatal(err)
		}
	}
	p.waits("@")
	return p
}

func (p *person) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", filepath.Join(p.dir, "tmux"), "-f", "/dev/null", "-u"}, args...)...)
}

func (p *person) tmux(args ...string) string {
	p.T.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		p.T.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// types types a text and Enter.
func (p *person) types(text string) {
	p.T.Helper()
	if text != "" {
		p.tmux("send-keys", "-l", "--", text)
	}
	p.tmux("send-keys", "Enter")
}

// presses presses keys.
func (p *person) presses(keys ...string) {
	p.T.Helper()
	p.tmux(append([]string{"send-keys"}, keys...)...)
}

// screen is what the terminal shows, with lines that the terminal has wrapped as one.
func (p *person) screen() string {
	out, err := p.command("capture-pane", "-p", "-J").CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// waits waits until the screen has texts, in their order.
func (p *person) waits(texts ...string) string {
	p.T.Helper()
	var pattern strings.Builder
	for _, text := range texts {
		pattern.WriteString("(?s:.*)" + regexp.QuoteMeta(text))
	}
	return p.matches(pattern.String())[0]
}

// matches waits until the screen matches.
func (p *person) matches(pattern string) []string {
	p.T.Helper()
	wanted := regexp.MustCompile(pattern)
	tick, late := time.NewTicker(20*time.Millisecond), time.After(90*time.Second)
	defer tick.Stop()
	for {
		if found := wanted.FindStringSubmatch(p.screen()); found != nil {
			return found
		}
		select {
		case <-tick.C:
		case <-late:
			p.T.Fatalf("the screen never shows %q", pattern)
		}
	}
}

// hasItsTerminalBack checks that a program has left the terminal as it was: its screen, cursor and mouse, and the settings
// in the files before and after, which the person has written with stty.
func (p *person) hasItsTerminalBack() {
	p.T.Helper()
	for name, want := range map[string]string{"#{alternate_on}": "0", "#{cursor_flag}": "1", "#{mouse_any_flag}": "0"} {
		if got := strings.TrimSpace(p.tmux("display-message", "-p", name)); got != want {
			p.T.Errorf("after the program %s is %s", name, got)
		}
	}
	before, err := os.ReadFile(filepath.Join(p.dir, "before"))
	if err != nil {
		p.T.Fatal(err)
	}
	if after, err := os.ReadFile(filepath.Join(p.dir, "after")); err != nil || string(after) != string(before) {
		p.T.Errorf("the terminal was %q and is %q: %v", before, after, err)
	}
}
