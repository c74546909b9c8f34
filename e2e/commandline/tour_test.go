package commandline

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/app/cli"
)

// terminal is where lines are typed: a folder and an environment.
type terminal struct {
	t   *testing.T
	ctx context.Context
	dir string
	env []string
}

// person has a server on the default socket, a home, and a terminal.
type person struct {
	*harness.Daemon
	terminal
}

// newPerson starts the server, with flags.
func newPerson(t *testing.T, flags ...string) *person {
	t.Helper()
	return newPersonWith(t, "default", flags...)
}

// newPersonWith is newPerson with a script of the model.
func newPersonWith(t *testing.T, model string, flags ...string) *person {
	t.Helper()
	st := harness.NewScripted(t)
	run, err := os.MkdirTemp("", "run") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.Symlink(program, filepath.Join(bin, "copilot-grpc"))); err != nil {
		t.Fatal(err)
	}
	d := harness.NewDaemon(st, append(flags, "--listen", "unix:"+filepath.Join(run, "copilot-grpc.sock"), "--offline-model",
		model)...)
	return &person{d, terminal{t, d.Ctx, home, []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + run,
		"XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "LC_ALL=C.UTF-8",
	}}}
}

// shell is a command line in a shell.
func (r *terminal) shell(line string) *exec.Cmd {
	cmd := exec.CommandContext(r.ctx, "bash", "-o", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

// types types a line, and returns what it prints and its exit code.
func (r *terminal) types(line string) (stdout, stderr string, code int) {
	r.t.Helper()
	cmd := r.shell(line)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("%s: %v", line, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// screen is a block of a page with lines that are typed, after "$ ", and what they print. "…" is any text.
var screen = regexp.MustCompile("(?s)<!-- test:(?:cli|change) -->\n```console\n(.*?)```")

// follow types the lines of a page's screens, each of which has to print what the page shows, and returns their number.
func (r *terminal) follow(file string) (typed int) {
	r.t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, block := range screen.FindAllStringSubmatch(string(page), -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(step, "\n")
			stdout, stderr, code := r.types(line)
			typed++
			if !shows(stdout+stderr, want) {
				r.t.Errorf("%s\nended with %d and printed\n%s%swant\n%s", line, code, stdout, stderr, want)
			}
		}
	}
	return typed
}

// The tour of docs/cli.md works as it is written.
func TestCommandLineTour(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	if typed := newPerson(t).follow("../../docs/cli.md"); typed < 15 {
		t.Errorf("the page has %d lines to type", typed)
	}
}

// typedElsewhere are the commands that no line of the pages below types, with the test that runs each.
var typedElsewhere = map[string]string{
	"serve": "each test of e2e", "chat": "TestChatPages", "demo": "make demo-smoke", "shim": "e2e/shim",
	"web link": "TestBrowserLogin", "issuer": "TestDeployPage",
}

// Each command is typed by a page, or has another test.
func TestEveryCommandIsTyped(t *testing.T) {
	t.Parallel()
	var typed strings.Builder
	for _, name := range []string{"cli.md", "data-directory.md"} {
		page, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range screen.FindAllStringSubmatch(string(page), -1) {
			typed.WriteString(block[1])
		}
	}
	var visit func(of *cobra.Command)
	visit = func(of *cobra.Command) {
		for _, c := range of.Commands() {
			visit(c)
		}
		_, path, _ := strings.Cut(of.CommandPath(), " ")
		isTyped := regexp.MustCompile(`(?m)(^\$ |\$\(|\| |&& )copilot-grpc ` + path + `( |$)`).MatchString(typed.String())
		switch {
		case of.HasSubCommands() || of.Hidden || path == "help":
		case !isTyped && typedElsewhere[path] == "":
			t.Errorf("no page types %q", path)
		case isTyped && typedElsewhere[path] != "" && path != "serve":
			t.Errorf("a page types %q", path)
		}
	}
	visit(cli.Command("test"))
}

// docs/data-directory.md verifies the directory of a killed server as it is written.
func TestDataDirectoryPage(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	state := filepath.Join(p.dir, ".local", "state")
	err := errors.Join(os.MkdirAll(state, 0o700), os.Symlink(filepath.Join(p.Root, "data"), filepath.Join(state, "copilot-grpc")))
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, code := p.types("copilot-grpc sessions create --id tour && copilot-grpc run Hello --session tour"); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	p.Stop(syscall.SIGKILL)
	if typed := p.follow("../../docs/data-directory.md"); typed < 3 {
		t.Errorf("the page has %d lines to type", typed)
	}
}

// The first change of CONTRIBUTING.md works as it is written, in a new clone of what is committed.
func TestFirstChange(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := terminal{t, t.Context(), t.TempDir(), os.Environ()}
	if out, err := exec.Command("git", "clone", "--quiet", "--depth=1", "file://"+root, r.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if typed := r.follow(filepath.Join(r.dir, "CONTRIBUTING.md")); typed < 7 {
		t.Errorf("the page has %d lines to type", typed)
	}
}

// shows reports whether a screen shows a text in which "…" stands for any text of one line or more.
func shows(got, want string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*?")
	return regexp.MustCompile("(?s)^" + pattern + "$").MatchString(strings.TrimSpace(got))
}
