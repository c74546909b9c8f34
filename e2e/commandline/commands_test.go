package commandline

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// The exit codes of run say how a turn ended.
func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	for _, tc := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{"copilot-grpc run Hello", "You said: Hello\n", "session ", 0},
		{"echo Hello | copilot-grpc run - -o json", `"status": "completed"`, "", 0},
		{"copilot-grpc run Hello -o jsonl | tail -n 1", `{"outcome":{"sessionId":"`, "", 0},
		{"copilot-grpc run", "", "want PROMPT", 2},
		{"copilot-grpc run 'Please run `touch ran`.'", "The user rejected", "refused: run touch ran\n", 3},
		{"copilot-grpc run 'Please run `touch ran`.' --approve reads", "The user rejected", "refused: run touch ran\n", 3},
		{"copilot-grpc run 'Please run `echo one two`.' --approve all", "one two", "tool bash {", 0},
		{"copilot-grpc run Hello --session none", "", "NotFound", 4},
		{"copilot-grpc run 'Please run `sleep 600`.' --approve all --timeout 5s", "", "the turn was aborted after 5s\n", 5},
		{"copilot-grpc run Hello --target unix:/none", "", `Start one with "copilot-grpc serve"`, 6},
		{"copilot-grpc run Hello | head -c 1", "Y", "", 0},
	} {
		stdout, stderr, code := p.types(tc.line)
		if code != tc.code && !strings.Contains(tc.line, "| head") || !strings.Contains(stdout, tc.stdout) ||
			!strings.Contains(stderr, tc.stderr) {
			t.Errorf("%s: code %d, want %d, stdout\n%sstderr\n%s", tc.line, code, tc.code, stdout, stderr)
		}
		if strings.Contains(stderr, "broken pipe") {
			t.Errorf("%s is not quiet: %s", tc.line, stderr)
		}
	}
}

// tools is a model that calls a tool.
const tools = `rules:
- when: {user_regex: '(?s)^run (.*)$'}
  reply: [{tool_call: {name: bash, arguments: {command: "{{match.1}}", description: "run it"}}}]
- when: {user_regex: '^write (\S+)$'}
  reply: [{tool_call: {name: create, arguments: {path: "{{match.1}}", file_text: "one\n"}}}]
- when: {user_regex: '^read (\S+)$'}
  reply: [{tool_call: {name: view, arguments: {path: "{{match.1}}"}}}]
default: {reply: [{text: "It came to: {{tool_result}}"}]}
`

// --allow-tool allows what its rules name, of what the CLI asks permission for, and nothing else.
func TestRunAllowTool(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	model := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(model, []byte(tools), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPersonWith(t, model)
	if out, errs, code := p.types("git init --quiet ."); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	for _, tc := range []struct {
		prompt, rules string
		code          int
	}{
		{"run git status", "shell(git status)", 0},
		{"run git status && git branch; git tag | git stripspace 2>&1", "shell(git:*)", 0},
		{"run git status", "shell(git)", 3},
		{"run git status; touch made", "shell(git:*)", 3},
		{"run git status > made", "shell(git:*)", 3},
		{"run > made git status", "shell(git:*)", 3},
		{"run git > made status", "shell(git:*)", 3},
		{"run git status $(touch made)", "shell(git:*),shell(touch)", 3},
		{"run git status `touch made`", "shell(git:*),shell(touch)", 3},
		{"run git status <(touch made)", "shell(git:*),shell(touch)", 3},
		{"run PATH=/none; git status", "shell(git:*)", 3},
		{"run GIT_PAGER=touch git status", "shell(git:*)", 3},
		{"run git() { touch made; }; git status", "shell(git:*),shell(touch)", 3},
		{"run git -c alias.x=!touch\\ made x", "shell(git status),shell(git x)", 3},
		{"run git status\ntouch made", "shell(git:*)", 3},
		{"run git status; touch 'more' > /dev/null", "shell(git:*), shell(touch)", 0},
		{"run touch all > redirected", "shell", 0},
		{"write " + p.dir + "/written", "write(written)", 0},
		{"write " + p.dir + "/made", "write(written)", 3},
		{"write " + p.dir + "/made", "shell", 3},
		{"read /etc/hosts", "read(/etc/hosts)", 0},
		{"read /etc/passwd", "read(/etc/hosts)", 3},
	} {
		cmd := exec.CommandContext(p.ctx, filepath.Join(p.dir, "bin", "copilot-grpc"), "run", tc.prompt, "--allow-tool", tc.rules)
		cmd.Dir, cmd.Env = p.dir, append(p.env, "COPILOT_GRPC_DIR="+p.dir)
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != tc.code {
			t.Errorf("%s with %s: code %d, want %d, %v\n%s", tc.prompt, tc.rules, code, tc.code, err, out)
		}
	}
	for name, want := range map[string]bool{"more": true, "all": true, "redirected": true, "written": true, "made": false} {
		if _, err := os.Stat(filepath.Join(p.dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// running is a command in the background.
type running struct {
	cmd            *exec.Cmd
	stdout, stderr *bufio.Reader
	// over ends the readers.
	over func()
}

// background starts a command line.
func (p *person) background(line string) *running {
	p.T.Helper()
	cmd := p.shell("exec " + line)
	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	return &running{cmd, bufio.NewReader(stdout), bufio.NewReader(stderr), func() { _, _ = out.Close(), errs.Close() }}
}

// interrupt types Ctrl-C, waits until stderr shows a text, and returns the exit code.
func (p *person) interrupt(r *running, text string) int {
	p.T.Helper()
	var drained sync.WaitGroup
	drained.Go(func() { _, _ = io.Copy(io.Discard, r.stdout) })
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.T.Fatal(err)
	}
	p.until(r.stderr, text)
	drained.Go(func() { _, _ = io.Copy(io.Discard, r.stderr) })
	_ = r.cmd.Wait() // the code says it
	r.over()
	drained.Wait()
	return r.cmd.ProcessState.ExitCode()
}

// until reads lines up to one with a text, and returns all of them.
func (p *person) until(r *bufio.Reader, text string) (lines string) {
	p.T.Helper()
	for {
		line, err := r.ReadString('\n')
		lines += line
		if strings.Contains(line, text) {
			return lines
		}
		if err != nil {
			p.T.Fatalf("no %q in\n%s: %v", text, lines, err)
		}
	}
}

// Ctrl-C aborts the turn of a run.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	run := p.background("copilot-grpc run 'Please run `sleep 600`.' --approve all")
	p.until(run.stderr, "tool bash")
	if code := p.interrupt(run, "the turn was aborted"); code != 130 {
		t.Errorf("the exit code is %d", code)
	}
}

// events begins at a time, and prints events byte for byte as the CLI has recorded them.
func TestEventsSinceAndRaw(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	create := "copilot-grpc sessions create --id one && copilot-grpc run first --session one && " +
		"head -c 600000 /dev/zero | tr '\\0' x > large.bin && copilot-grpc run second --session one --file large.bin"
	if out, errs, code := p.types(create); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	raw, errs, code := p.types("copilot-grpc events one --no-follow --raw --types session.start,user.message,assistant.message")
	record, err := os.ReadFile(filepath.Join(p.Root, "home", "session-state", "one", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(raw, "\n"), "\n")
	for _, line := range lines {
		if !strings.Contains("\n"+string(record), "\n"+strings.TrimSuffix(line, "\n")+"\n") {
			t.Errorf("the CLI has not recorded %.200s", line)
		}
	}
	if len(lines) != 5 || code != 0 || len(raw) < 800_000 {
		t.Fatalf("code %d, %d lines of %d bytes: %s", code, len(lines), len(raw), errs)
	}
	var second struct{ Timestamp string }
	if err := json.Unmarshal([]byte(lines[3]), &second); err != nil {
		t.Fatal(err)
	}
	since, errs, code := p.types("copilot-grpc events one --no-follow --types user.message --since " + second.Timestamp)
	if code != 0 || !strings.Contains(since, "user.message            second\n") || strings.Contains(since, "first") {
		t.Errorf("since %s: code %d\n%s%s", second.Timestamp, code, since, errs)
	}
	if later, errs, code := p.types("copilot-grpc events one --no-follow --since 2100-01-01T00:00:00Z"); later != "" || code != 0 {
		t.Errorf("since 2100: code %d\n%s%s", code, later, errs)
	}
}

// events continues after the server was killed, and says so once.
func TestEventsReconnects(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	p := newPerson(t)
	first := "copilot-grpc sessions create --id one && copilot-grpc run first --session one"
	if out, errs, code := p.types(first); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	events := p.background("copilot-grpc events one")
	stdout, stderr := events.stdout, events.stderr
	p.until(stdout, "user.message            first")
	p.until(stdout, "session.idle")
	p.Stop(syscall.SIGKILL)
	p.until(stderr, "event stream broken: ")
	p.Start()
	if lines := p.until(stderr, "reconnected"); strings.Contains(lines, "broken") {
		t.Errorf("the broken stream is reported again:\n%s", lines)
	}
	if out, errs, code := p.types("copilot-grpc run second --session one"); code != 0 {
		t.Fatalf("%s%s", out, errs)
	}
	again := p.until(stdout, "user.message            second")
	if strings.Contains(again, "user.message            first") {
		t.Errorf("events are repeated:\n%s", again)
	}
	if code := p.interrupt(events, "Continue with --after "); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
}
