package commandline

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// person has a server on the default socket, a home, and a shell.
type person struct {
	*harness.Daemon
	dir string
	env []string
}

func newPerson(t *testing.T) *person {
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
	d := harness.NewDaemon(st, "--listen", "unix:"+filepath.Join(run, "copilot-grpc.sock"), "--offline-model", "default")
	return &person{d, home, []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + home, "XDG_RUNTIME_DIR=" + run,
		"XDG_CONFIG_HOME=" + filepath.Join(home, ".config"), "LC_ALL=C.UTF-8",
	}}
}

// shell is a command line in a shell.
func (p *person) shell(line string) *exec.Cmd {
	cmd := exec.CommandContext(p.Ctx, "bash", "-o", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// types types a line, and returns what it prints and its exit code.
func (p *person) types(line string) (stdout, stderr string, code int) {
	p.T.Helper()
	cmd := p.shell(line)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.T.Fatalf("%s: %v", line, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// screen is a block of docs/cli.md with lines that are typed, after "$ ", and what they print. "…" is any text.
var screen = regexp.MustCompile("(?s)<!-- test:cli -->\n```console\n(.*?)```")

// The tour of docs/cli.md works as it is written: each line is typed, and prints what the page shows.
func TestCommandLineTour(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	p := newPerson(t)
	typed := 0
	for _, block := range screen.FindAllStringSubmatch(string(page), -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			line, want, _ := strings.Cut(step, "\n")
			stdout, stderr, code := p.types(line)
			typed++
			if !shows(stdout+stderr, want) {
				t.Errorf("%s\nended with %d and printed\n%s%swant\n%s", line, code, stdout, stderr, want)
			}
		}
	}
	if typed < 15 {
		t.Errorf("the page has %d lines to type", typed)
	}
}

// shows reports whether a screen shows a text in which "…" stands for any text of one line or more.
func shows(got, want string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*?")
	return regexp.MustCompile("(?s)^" + pattern + "$").MatchString(strings.TrimSpace(got))
}
