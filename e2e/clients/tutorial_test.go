package clients

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// step is one mark of docs/tutorial.md, with the block of text below it if it needs one:
//
//	run           lines for a shell, which end
//	start N       a program in terminal N
//	shows N       what terminal N shows, with what the user types after a prompt; … stands for any text
//	end N         the user ends the program in terminal N with an empty line
//	interrupt N   the user types Ctrl-C in terminal N
//	file NAME     a file that the user saves
var step = regexp.MustCompile("(?s)<!-- tutorial: (\\w+) ?(\\S*) -->(?:\n```\\w+\n(.*?\n)```)?")

// The tutorial works as it is written: its commands are typed in, its programs run, and they show what the page shows.
// Only `make client-python`, which downloads the packages that pip needs, runs the test: it builds the program and the
// library from a clone.
func TestPythonTutorial(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	user := newReader(t)
	page := read(t, filepath.Join("..", "..", "docs", "tutorial.md"))
	blocks := 0
	for _, found := range step.FindAllStringSubmatch(page, -1) {
		what, name, text := found[1], found[2], found[3]
		if text != "" {
			blocks++
		}
		switch what {
		case "run":
			user.run(text)
		case "start":
			user.start(name, text)
		case "shows":
			user.terminal(name).shows(text)
		case "end":
			user.terminal(name).end()
		case "interrupt":
			user.terminal(name).interrupt()
		case "file":
			user.save(name, text)
		default:
			t.Fatalf("the page has an unknown mark: %s", found[0])
		}
	}
	if fences := strings.Count(page, "```"); fences != 2*blocks || blocks == 0 {
		t.Errorf("%d of the page's %d blocks have a mark", blocks, fences/2)
	}
	for name := range user.terminals {
		t.Errorf("the page leaves a program running in terminal %s", name)
	}
}

// reader does what the page says, with a home and a clone of the repository of its own.
type reader struct {
	t         *testing.T
	env       []string
	dir       string
	terminals map[string]*terminal
}

func newReader(t *testing.T) *reader {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	wheels := filepath.Join(root, "clients", "python", ".cache", "wheels")
	if os.Getenv("CLIENT_PYTHON") == "" {
		t.Skip("NOT RUN: make client-python downloads the packages, and runs it")
	}
	home, err := os.MkdirTemp("", "tutorial") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	// A python3 that is a script of a version manager looks for its versions in the home.
	python := output(t, exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.base_prefix)"))
	r := &reader{t: t, dir: home, terminals: map[string]*terminal{}, env: append(harness.UserEnv(t, home),
		"PATH="+filepath.Join(strings.TrimSpace(python), "bin")+":"+os.Getenv("PATH"),
		"PIP_NO_INDEX=1", "PIP_FIND_LINKS="+wheels, "PIP_DISABLE_PIP_VERSION_CHECK=1",
		// The clone is one of this repository's last commit.
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+root+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://github.com/copilot-grpc/copilot-grpc",
	)}
	t.Cleanup(func() { // after a failure
		for _, left := range r.terminals {
			_ = left.cmd.Cancel()
			_ = left.cmd.Wait()
		}
	})
	return r
}

// command is a line, or lines, of the page.
func (r *reader) command(lines string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*harness.Patience)
	r.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", lines)
	cmd.Dir, cmd.Env = r.dir, r.env
	// The programs that it starts are in its group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// run runs lines to their end. Later ones run in the folder in which these end.
func (r *reader) run(lines string) {
	r.t.Helper()
	out, err := r.command(lines + "pwd\n").CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s%v\n%s", lines, err, out)
	}
	printed := strings.Split(strings.TrimSpace(string(out)), "\n")
	r.dir = printed[len(printed)-1]
}

func (r *reader) save(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reader) terminal(name string) *terminal {
	r.t.Helper()
	found := r.terminals[name]
	if found == nil {
		r.t.Fatalf("no program runs in terminal %s", name)
	}
	return found
}

// terminal is a program that runs in a terminal of the reader.
type terminal struct {
	*reader
	name string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Reader
	// seen is the program's output so far, with what was typed.
	seen strings.Builder
	// open: the newline after the last line has yet to come.
	open bool
}

// start starts the program of a line. The log of a server is compared with the page; the warnings of a library, such as
// those of a lost connection, are not.
func (r *reader) start(name, line string) {
	r.t.Helper()
	if r.terminals[name] != nil {
		r.t.Fatalf("a program runs in terminal %s already", name)
	}
	cmd := r.command("exec " + line)
	in, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if cmd.Stderr = r.t.Output(); strings.Contains(line, " serve ") {
		cmd.Stderr = cmd.Stdout
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.terminals[name] = &terminal{reader: r, name: name, cmd: cmd, in: in, out: bufio.NewReader(out)}
}

// prompt is a line of the page on which the user types.
var prompt = regexp.MustCompile(`^(> |.*\[y/n\] )(.*)$`)

// shows follows a text of the page. The newline after its last line may come later.
func (p *terminal) shows(text string) {
	p.t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if p.open {
			p.expect("\n")
		}
		asked := prompt.FindStringSubmatch(line)
		if asked == nil {
			p.open = true
			p.expect(line)
			continue
		}
		p.open = false
		p.expect(asked[1])
		p.enter(asked[2])
	}
}

// expect reads a text; a text with … is a whole line.
func (p *terminal) expect(text string) {
	p.t.Helper()
	if strings.Contains(text, "…") {
		line, err := p.out.ReadString('\n')
		p.seen.WriteString(line)
		want := "^" + strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*") + "\n$"
		if err != nil || !regexp.MustCompile(want).MatchString(line) {
			p.t.Fatalf("terminal %s shows %q, not %q: %v", p.name, line, text, err)
		}
		p.open = false
		return
	}
	for i := range len(text) {
		shown, err := p.out.ReadByte()
		if err == nil {
			p.seen.WriteByte(shown)
		}
		if err != nil || shown != text[i] {
			p.t.Fatalf("terminal %s does not show %q (%v):\n%s", p.name, text, err, &p.seen)
		}
	}
}

func (p *terminal) enter(line string) {
	p.t.Helper()
	fmt.Fprintln(&p.seen, line)
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatalf("terminal %s: %v", p.name, err)
	}
}

// end has the program end by itself: it shows its prompt, gets an empty line, and shows nothing more.
func (p *terminal) end() {
	p.t.Helper()
	p.shows("> ")
	rest, _ := io.ReadAll(p.out)
	if err := p.cmd.Wait(); err != nil || len(rest) > 0 {
		p.t.Fatalf("terminal %s: the program ends with %v and %q", p.name, err, rest)
	}
	delete(p.terminals, p.name)
}

// interrupt ends the program in order, or by the signal.
func (p *terminal) interrupt() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended, which Wait reports
	rest, _ := io.ReadAll(p.out)
	err := p.cmd.Wait()
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil && (!ok || status.Signal() != syscall.SIGINT) {
		p.t.Fatalf("terminal %s: the program ends with %v\n%s%s", p.name, err, &p.seen, rest)
	}
	delete(p.terminals, p.name)
}
