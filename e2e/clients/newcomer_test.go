package clients

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// newcomerModel answers the prompts of testNewcomer. Nobody opens the gate.
const newcomerModel = `rules:
- when: {user: weather}
  reply: [{tool_call: {name: get_weather, arguments: {city: Paris}}}]
- when: {tool_result: {name: get_weather}}
  reply: [{text: "It says: {{tool_result}}"}]
- when: {user: slowly}
  reply: [{text: "First. "}, {wait_for: gate}]
`

// The first program that a newcomer reads is short in every language, with its comments and empty lines.
func TestNewcomersProgramsAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"go/examples/newcomer/main.go", "java/examples/Newcomer.java", "python/examples/newcomer.py",
		"rust/examples/newcomer.rs", "typescript/examples/newcomer.ts",
	} {
		text, err := os.ReadFile(filepath.Join("../../clients", name))
		if err != nil {
			t.Error(err)
		}
		if lines := strings.Count(string(text), "\n"); lines > 45 {
			t.Errorf("%s has %d lines, more than 45: make the library easier to use", name, lines)
		}
	}
}

// newcomer is the example of that name in a language: SESSION PROMPT... are its arguments, and it prints how it decided
// about permissions, the pieces of the agent's text, the outcome of each turn and the sessions, and exports the session.
type newcomer struct {
	t       *testing.T
	daemon  *harness.Daemon
	program []string
}

// start starts the program in a folder of its own.
func (n newcomer) start(args ...string) (cmd *exec.Cmd, out *bufio.Reader) {
	n.t.Helper()
	cmd = exec.CommandContext(n.daemon.Ctx, n.program[0], append(n.program[1:len(n.program):len(n.program)], args...)...)
	cmd.Dir = n.t.TempDir()
	cmd.Env = append(os.Environ(), copilot.TargetEnv+"=unix:"+filepath.Join(n.daemon.Root, "s"))
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return cmd, bufio.NewReader(pipe)
}

// end returns the rest of the output of a program, which exits without an error and leaves an archive.
func (n newcomer) end(cmd *exec.Cmd, out *bufio.Reader) string {
	n.t.Helper()
	var rest strings.Builder
	_, _ = out.WriteTo(&rest)
	if err := cmd.Wait(); err != nil {
		n.t.Fatalf("%s: %v\n%s", cmd, err, &rest)
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, "session.tar.gz")); err != nil {
		n.t.Error(err)
	}
	return rest.String()
}

// contain checks that an output has texts in their order.
func (n newcomer) contain(out string, texts ...string) {
	n.t.Helper()
	rest := out
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			n.t.Errorf("no %q in its place in:\n%s", text, out)
			return
		}
		rest = after
	}
}

// testNewcomer has the program use a session, loses the server in the middle of a turn, and has the program continue.
func testNewcomer(t *testing.T, program ...string) {
	t.Helper()
	model := filepath.Join(t.TempDir(), "model.yaml")
	if err := os.WriteFile(model, []byte(newcomerModel), 0o600); err != nil {
		t.Fatal(err)
	}
	n := newcomer{t, harness.NewDaemon(harness.NewScripted(t), "--offline-model", model), program}

	n.contain(n.end(n.start("first", "weather", "weather")),
		"approved custom-tool", "It says: rain in Paris", "completed",
		"refused custom-tool", "Once is enough.", "completed", "first is loaded")

	cmd, out := n.start("first", "slowly")
	if piece, err := out.ReadString('.'); piece != "First." { // streams, because the message has no end
		t.Fatalf("the deltas begin with %q: %v", piece, err)
	}
	n.daemon.Crash()
	n.contain(n.end(cmd, out), "runtime_lost", "first is loaded")

	// At once: the run that was interrupted has left with its tool.
	n.contain(n.end(n.start("first", "weather")), "approved custom-tool", "It says: rain in Paris", "completed")
}
