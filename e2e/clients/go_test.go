package clients

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/copilottest"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// weather makes the model call a tool for the weather in Paris.
func weather() []copilottest.Rule {
	return copilottest.Call("weather", "get_weather", map[string]any{"city": "Paris"}, "It says: {{tool_result}}")
}

// start starts a server of the program under test.
func start(t *testing.T, args []string, rules ...copilottest.Rule) *copilottest.Server {
	t.Helper()
	harness.SkipWithoutCLI(t)
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	return copilottest.Config{Binary: program, Args: args, Rules: rules}.Start(t)
}

// command is a program of a user of a server.
func command(t *testing.T, server *copilottest.Server, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), copilot.TargetEnv+"="+server.Target())
	return cmd
}

// output runs a program to its end.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, problems.String())
	}
	return string(out)
}

// module is a module of a user, with the examples and the README's code as packages, and its binaries in bin.
func module(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const path = "github.com/copilot-grpc/copilot-grpc"
	write("go.mod", fmt.Sprintf("module example.com/agents\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\nreplace %s => %s\n",
		path, path, root))
	write("go.sum", read("go.sum"))
	for _, example := range []string{"agent", "watcher", "shared", "newcomer"} {
		write(example+"/main.go", read("clients/go/examples/"+example+"/main.go"))
	}
	for name, text := range readme(t, read("clients/go/README.md")+read("docs/clients.md")) {
		write(name, text)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", "bin/", "./...")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return dir
}

// blocks finds the code of the README, and of docs/clients.md, that says how it is to be run.
var blocks = regexp.MustCompile("(?s)<!-- (run|compile)(?:: (\\w+))? -->\n```go\n(.*?)```")

// imports are the packages of the README's fragments. None is of generated code: users need not know its path.
var imports = map[string]string{
	"errors": "errors", "fmt": "fmt", "io": "io", "os": "os", "time": "time",
}

// readme returns the files of the code of a text: a program, a test, and a program with the fragments.
func readme(t *testing.T, text string) map[string]string {
	t.Helper()
	files := map[string]string{}
	var functions, calls, named strings.Builder
	for i, block := range blocks.FindAllStringSubmatch(text, -1) {
		how, kind, code := block[1], block[2], block[3]
		switch kind {
		case "program":
			files["program/main.go"] = code
			continue
		case "test":
			files["tested/agent_test.go"] = code
			continue
		}
		if kind == "archive" {
			code = archiveBegin + code + archiveEnd
		}
		fmt.Fprintf(&functions, "func snippet%d(%s) error {\n%s\treturn nil\n}\n\n", i, parameters, code)
		if kind == "inbox" {
			fmt.Fprintf(&calls, "\tinbox(client, func() error { return snippet%d(ctx, client, nil) })\n", i)
			continue
		}
		if how == "run" {
			fmt.Fprintf(&calls, "\trun(\"snippet %d\", snippet%d)\n", i, i)
		} else {
			fmt.Fprintf(&calls, "\t_ = snippet%d\n", i)
		}
	}
	if len(files) != 2 || strings.Count(calls.String(), "run(") < 7 {
		t.Fatalf("the README has %d files and these snippets:\n%s", len(files), calls.String())
	}
	for name, path := range imports {
		if strings.Contains(functions.String(), name+".") {
			fmt.Fprintf(&named, "\t%s %q\n", name, path)
		}
	}
	files["snippets/main.go"] = fmt.Sprintf(frame, named.String(), calls.String(), functions.String())
	return files
}

// archiveBegin and archiveEnd surround the fragment that exports a session and imports it.
const (
	archiveBegin = "\tother, sessionID := client, session.ID()\n"
	archiveEnd   = `	if err != nil {
		return err
	}
	fmt.Println("from", sessionID == made.GetOriginSessionId(), "to", made.GetSession().GetSessionId())
`
)

// parameters are what a fragment may use.
const parameters = "ctx context.Context, client *copilot.Client, session *copilot.Session"

// frame surrounds the fragments.
const frame = `package main

import (
	"context"
	"log"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	messages "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
%s)

func main() {
	ctx := context.Background()
	client, err := copilot.Connect(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	run := func(name string, snippet func(context.Context, *copilot.Client, *copilot.Session) error) {
		session, err := client.CreateSession(ctx, copilot.SessionOptions{})
		if err == nil {
			_, err = session.SendAndWait(ctx, "first")
		}
		if err == nil {
			err = snippet(ctx, client, session)
		}
		if err != nil {
			log.Fatalf("%%s: %%v", name, err)
		}
	}
%s}

%s
// inbox runs a snippet that answers callbacks, beside a turn that needs an answer.
func inbox(client *copilot.Client, snippet func() error) {
	go func() { _ = snippet() }()
	ctx := context.Background()
	session, err := client.CreateSession(ctx, copilot.SessionOptions{
		Labels:          map[string]string{"team": "payments"},
		SessionHandlers: &messages.Handlers{Permission: true},
		Tools: []copilot.Tool{copilot.NewTool("get_weather", "Tells the weather.",
			func(context.Context, struct{ City string "json:\"city\"" }) (string, error) {
				return "approved rain", nil
			})},
	})
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := session.SendAndWait(ctx, "What is the weather?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome.Text())
}
`

// The library works in a module of its own: the code of its README, and its examples.
func TestGoReadmeAndExamples(t *testing.T) {
	t.Parallel()
	server := start(t, nil, weather()...)
	dir := module(t)
	bin := func(name string) string { return filepath.Join(dir, "bin", name) }
	if got := output(t, command(t, server, dir, bin("program"))); got != "It says: rain in Paris\n" {
		t.Errorf("the README's program: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "photo.png"), []byte("\x89PNG"), 0o600); err != nil {
		t.Fatal(err)
	}
	snippets := output(t, command(t, server, dir, bin("snippets")))
	for _, want := range []string{
		"You said: Hello", "tool get_weather", " session.start", "there is no such session", " review\n",
		"\npermission in ", "It says: approved rain", "from true to copy",
	} {
		if !strings.Contains(snippets, want) {
			t.Errorf("the README's snippets print no %q:\n%s", want, snippets)
		}
	}
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	test := command(t, server, dir, "go", "test", "-mod=mod", "-count=1", "./tested")
	test.Env = append(test.Env, "COPILOT_GRPC_BINARY="+program, copilottest.RequiredEnv+"=1")
	output(t, test)

	agent := command(t, server, dir, bin("agent"), "What is the weather?")
	agent.Stdin = strings.NewReader("y\n")
	want := "The agent asks for permission: custom-tool [y/n/s]\nIt says: {\"sky\":\"rain\",\"temperature\":12}\n"
	if got := output(t, agent); got != want {
		t.Errorf("agent: %q", got)
	}
	want = "participants: boss, worker\nboss: permits custom-tool\nworker: tells the weather in Paris\n" +
		"agent: It says: rain in Paris\n"
	if got := output(t, command(t, server, dir, bin("shared"))); got != want {
		t.Errorf("shared: %q", got)
	}
	t.Run("watcher", func(t *testing.T) { testWatcher(t, dir) })
}

// A newcomer's program in Go, built in a module of its own.
func TestGoNewcomer(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	testNewcomer(t, filepath.Join(module(t), "bin", "newcomer"))
}

// The test server's model waits for gates.
func TestGoTestServer(t *testing.T) {
	t.Parallel()
	server := start(t, nil,
		copilottest.Reply(copilottest.Text("one "), copilottest.WaitFor("gate"), copilottest.Text("two")))
	session, err := server.Client().CreateSession(t.Context(), copilot.SessionOptions{
		Config: &cliv1.SessionConfig{Streaming: proto.Bool(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for text, err := range session.Run(t.Context(), "hello").Deltas() {
		if err != nil {
			t.Fatal(err)
		}
		if texts = append(texts, text); strings.Join(texts, "") == "one " {
			server.Release("gate")
		}
	}
	if got := strings.Join(texts, ""); got != "one two" || len(texts) < 2 {
		t.Errorf("deltas: %q", texts)
	}
}

// watcher is a run of the watcher.
type watcher struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func watch(t *testing.T, server *copilottest.Server, dir, session, file string) *watcher {
	t.Helper()
	cmd := command(t, server, dir, filepath.Join(dir, "bin", "watcher"), session, file)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &watcher{t: t, cmd: cmd, lines: bufio.NewScanner(out)}
}

// until returns the lines up to the n-th one of a type.
func (w *watcher) until(eventType string, n int) (lines []string) {
	w.t.Helper()
	for w.lines.Scan() {
		lines = append(lines, w.lines.Text())
		if strings.HasSuffix(w.lines.Text(), " "+eventType) {
			n--
		}
		if n == 0 {
			return lines
		}
	}
	w.t.Fatalf("the watcher ended: %v, %v", w.lines.Err(), lines)
	return nil
}

// end interrupts the watcher, and returns the lines that it still printed.
func (w *watcher) end() (lines []string) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(os.Interrupt); err != nil {
		w.t.Error(err)
	}
	for w.lines.Scan() {
		lines = append(lines, w.lines.Text())
	}
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("the watcher: %v", err)
	}
	return lines
}

// testWatcher restarts the server under a watcher, and then the watcher: each line comes once and in order.
func testWatcher(t *testing.T, dir string) {
	server := start(t, []string{"--drain-grace", "200ms"})
	session, err := server.Client().CreateSession(t.Context(), copilot.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	say := func(text string) {
		t.Helper()
		outcome, err := session.SendAndWait(t.Context(), text)
		if err == nil {
			err = outcome.Err()
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	file := filepath.Join(t.TempDir(), "position")
	first := watch(t, server, dir, session.ID(), file)
	say("one")
	lines := first.until("session.idle", 1)
	server.Restart()
	say("two")
	lines = append(lines, first.until("session.idle", 1)...)
	lines = append(lines, first.end()...)
	second := watch(t, server, dir, session.ID(), file)
	say("three")
	lines = append(lines, second.until("session.idle", 1)...)
	lines = append(lines, second.end()...)
	var positions []string
	said := 0
	for i, line := range lines {
		position, eventType, _ := strings.Cut(line, " ")
		if eventType == "user.message" {
			said++
		}
		positions = append(positions, position)
		if i == 0 {
			continue
		}
		a, errA := copilot.ParsePosition(positions[i-1])
		b, errB := copilot.ParsePosition(position)
		if errA != nil || errB != nil || copilot.ComparePositions(a, b) >= 0 {
			t.Errorf("after %s comes %s", lines[i-1], line)
		}
	}
	if said != 3 {
		t.Errorf("%d user messages:\n%s", said, strings.Join(lines, "\n"))
	}
}
