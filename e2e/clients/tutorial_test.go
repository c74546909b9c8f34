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

// step is one mark of docs/tutorial.md or of the page of a language, with the block of text below it if it needs one:
//
//	run           lines for a shell, which end
//	library       lines that make a library or its program, which the language's suite has done
//	language      here the reader follows the page of a language
//	program NAME  the library's example, which the user saves
//	alias         the command that `weather` stands for
//	start N       a program in terminal N
//	shows N       what terminal N shows, with what the user types after a prompt; … stands for any text
//	end N         the user ends the program in terminal N with an empty line
//	kill N        the user kills the program in terminal N
//	interrupt N   the user types Ctrl-C in terminal N
var step = regexp.MustCompile("(?s)<!-- tutorial: (\\w+) ?(\\S*) -->(?:\n```\\w+\n(.*?\n)```)?")

// aliased finds the command of an alias.
var aliased = regexp.MustCompile(`^alias weather='?(.*?)'?\n$`)

// The tutorial works as it is written, in each language: its commands are typed in, its program runs, and both programs
// and the server show what the page shows. Only `make client-python`, which downloads the packages that pip needs, runs
// the test in Python: it builds the library from a clone.
func TestPythonTutorial(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLIENT_PYTHON") == "" {
		t.Skip("NOT RUN: make client-python downloads the packages, and runs it")
	}
	user := newReader(t, "python", "weather.py")
	// A python3 that is a script of a version manager looks for its versions in the home.
	python := output(t, exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.base_prefix)"))
	user.env = append(user.env,
		"PATH="+filepath.Join(strings.TrimSpace(python), "bin")+":"+os.Getenv("PATH"),
		"PIP_NO_INDEX=1", "PIP_FIND_LINKS="+filepath.Join(user.root, "clients/python/.cache/wheels"),
		"PIP_DISABLE_PIP_VERSION_CHECK=1")
	user.follow("tutorial.md")
}

func TestGoTutorial(t *testing.T) {
	t.Parallel()
	newReader(t, "go", "weather/main.go").follow("tutorial.md")
}

// The reader packs what make client-typescript has compiled.
func TestTypeScriptTutorial(t *testing.T) {
	t.Parallel()
	if os.Getenv("CLIENT_TYPESCRIPT") == "" {
		t.Skip("NOT RUN: make client-typescript compiles the library")
	}
	user := newReader(t, "typescript", "weather.ts")
	user.library = func() {
		user.run("npm pack --ignore-scripts --pack-destination clients/typescript " + user.root + "/clients/typescript\n")
	}
	user.follow("tutorial.md")
}

// The reader's repository is the one into which make client-java has installed the library.
func TestJavaTutorial(t *testing.T) {
	t.Parallel()
	javac(t, "Weather.java")
	user := newReader(t, "java", "Weather.java")
	user.env = append(user.env, "MAVEN_OPTS=-Dmaven.repo.local="+javaLibrary(t, "core/target/try/repository"))
	user.library = func() {}
	user.follow("tutorial.md")
}

// The reader's program is the one that make client-rust has built: its dependencies take minutes.
func TestRustTutorial(t *testing.T) {
	t.Parallel()
	program := rustExample(t, "weather")
	user := newReader(t, "rust", "weather.rs")
	user.library = func() { user.run("mkdir -p target/debug && ln -s " + program + " target/debug/\n") }
	user.follow("tutorial.md")
}

// reader does what the pages say, with a home and a clone of the repository of its own.
type reader struct {
	t *testing.T
	// root is the repository, of which the reader makes a clone.
	root string
	env  []string
	// language and example are names in clients and in its examples.
	language, example string
	// library does what the lines of such a mark do.
	library   func()
	dir       string
	alias     string
	terminals map[string]*terminal
	// dirs has the folder of each terminal, in which its first program started.
	dirs map[string]string
}

func newReader(t *testing.T, language, example string) *reader {
	t.Helper()
	harness.SkipWithoutCLI(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "tutorial") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	r := &reader{
		t: t, root: root, dir: home, terminals: map[string]*terminal{}, dirs: map[string]string{},
		language: language, example: example,
		env: append(harness.UserEnv(t, home), // The clone is one of this repository's last commit.
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+root+".insteadOf",
			"GIT_CONFIG_VALUE_0=https://github.com/copilot-grpc/copilot-grpc"),
	}
	r.keep("npm_config_cache", ".npm")
	r.keep("npm_config_userconfig", ".npmrc")
	r.keep("CARGO_HOME", ".cargo")
	r.keep("RUSTUP_HOME", ".rustup")
	t.Cleanup(func() { // after a failure
		for _, left := range r.terminals {
			_ = left.cmd.Cancel()
			_ = left.cmd.Wait()
		}
	})
	return r
}

// keep has a tool use what it has in the home of the test's user, such as its downloads.
func (r *reader) keep(variable, name string) {
	r.t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		r.t.Fatal(err)
	}
	if os.Getenv(variable) == "" {
		r.env = append(r.env, variable+"="+filepath.Join(home, name))
	}
}

// follow does what a page of docs says.
func (r *reader) follow(name string) {
	r.t.Helper()
	page := read(r.t, filepath.Join(r.root, "docs", name))
	blocks := 0
	for _, found := range step.FindAllStringSubmatch(page, -1) {
		if found[3] != "" {
			blocks++
		}
		r.step(found[1], found[2], found[3])
	}
	if fences := strings.Count(page, "```"); fences != 2*blocks || blocks == 0 {
		r.t.Errorf("%s: %d of the page's %d blocks have a mark", name, blocks, fences/2)
	}
	for left := range r.terminals {
		if name == "tutorial.md" {
			r.t.Errorf("the page leaves a program running in terminal %s", left)
		}
	}
}

func (r *reader) step(what, name, text string) {
	r.t.Helper()
	switch what {
	case "run":
		r.run(text)
	case "library":
		r.library()
	case "language":
		r.follow(filepath.Join("tutorial", r.language+".md"))
	case "program":
		if text != read(r.t, filepath.Join(r.root, "clients", r.language, "examples", r.example)) {
			r.t.Errorf("the program of the page is not the example %s", r.example)
		}
		r.save(name, text)
	case "alias":
		r.alias = aliased.FindStringSubmatch(text)[1]
	case "start":
		r.start(name, strings.TrimSuffix(text, "\n"))
	case "shows":
		r.terminal(name).shows(strings.TrimSuffix(text, "\n"))
	case "end":
		r.terminal(name).end()
	case "kill":
		r.terminal(name).kill()
	case "interrupt":
		r.terminal(name).interrupt()
	default:
		r.t.Fatalf("the page has an unknown mark: %s", what)
	}
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
	out, err := r.command(lines + "echo; pwd\n").CombinedOutput() // a program may leave its last line open
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
	// prompted: the program shows its prompt, which the page has shown.
	prompted bool
}

// start starts the program of a line. The log of a server is compared with the page; the warnings of a library, such as
// those of a lost connection, are not.
func (r *reader) start(name, line string) {
	r.t.Helper()
	if r.terminals[name] != nil {
		r.t.Fatalf("a program runs in terminal %s already", name)
	}
	if role, ok := strings.CutPrefix(line, "weather"); ok {
		line = r.alias + role
	}
	if r.dirs[name] == "" {
		r.dirs[name] = r.dir
	}
	cmd := r.command("exec " + line)
	cmd.Dir = r.dirs[name]
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
	for line := range strings.SplitSeq(text, "\n") {
		if p.open {
			p.expect("\n")
		}
		asked := prompt.FindStringSubmatch(line)
		p.open = asked == nil && line != ">"
		switch {
		case line == ">": // editors remove the space
			p.expect("> ")
			p.prompted = true
		case asked == nil:
			p.expect(line)
		default:
			if !p.prompted {
				p.expect(asked[1])
			}
			p.prompted = false
			p.enter(asked[2])
		}
	}
}

// leftRunning is what a server logs if the CLI of the one before, which was killed, has not ended by itself yet.
const leftRunning = "ended processes that a killed server left running"

// expect reads a text; a text with … is a whole line.
func (p *terminal) expect(text string) {
	p.t.Helper()
	if strings.Contains(text, "…") {
		line, err := p.out.ReadString('\n')
		p.seen.WriteString(line)
		for err == nil && strings.Contains(line, leftRunning) {
			line, err = p.out.ReadString('\n')
			p.seen.WriteString(line)
		}
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

// end has the program end by itself: it gets an empty line, and shows nothing but its prompt, if it has one.
func (p *terminal) end() {
	p.t.Helper()
	if p.open {
		p.expect("\n")
	}
	p.enter("")
	rest, _ := io.ReadAll(p.out)
	if err := p.cmd.Wait(); err != nil || len(rest) > 0 && string(rest) != "> " {
		p.t.Fatalf("terminal %s: the program ends with %v and %q", p.name, err, rest)
	}
	delete(p.terminals, p.name)
}

// kill kills the program and what it started, as kill -9 does with a shell's job.
func (p *terminal) kill() {
	p.t.Helper()
	if err := p.cmd.Cancel(); err != nil {
		p.t.Fatalf("terminal %s: %v", p.name, err)
	}
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait()
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
