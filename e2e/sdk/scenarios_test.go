package sdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

const (
	// languageEnv names the SDK whose scenarios are played; .ci/sdk sets it.
	languageEnv = "COPILOT_GRPC_TEST_SDK"
	// listEnv names a file with the scenarios to play, one a line; without it all are.
	listEnv = "COPILOT_GRPC_TEST_SDK_LIST"
	// cliEnv names the executable of the Copilot CLI.
	cliEnv = "COPILOT_CLI_PATH"
	// patience is how long a scenario may take: far more than any takes.
	patience = 150 * time.Second
)

// languages are the SDKs: where their scenarios are, and what plays one.
var languages = map[string]struct {
	dir     string
	command []string
}{
	"typescript": {dir: "typescript", command: []string{"node", "run.mjs"}},
	"python":     {dir: "python", command: []string{".cache/venv/bin/python", "-m", "scenarios"}},
}

// hall is where the scenarios of one SDK are played.
type hall struct {
	language string
	// cli is the real CLI, bridge the executable under test.
	cli, version, bridge string
	// home is the user's home for all: what the CLI unpacks there is unpacked once.
	home  string
	model *offlinemodel.Server
	mcp   string
}

// TestScenarios plays each scenario on the CLI and on the shim, at the same time, and
// compares their records.
func TestScenarios(t *testing.T) {
	t.Parallel()
	h := openHall(t)
	for _, name := range h.scenarios(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.compare(t, name)
		})
	}
}

func openHall(t *testing.T) *hall {
	t.Helper()
	h := &hall{language: os.Getenv(languageEnv), cli: os.Getenv(cliEnv), home: t.TempDir(), mcp: startMCP(t)}
	if h.language == "" {
		t.Skip(languageEnv + " is not set: .ci/sdk runs this")
	}
	if _, known := languages[h.language]; !known {
		t.Fatalf("%s is %q, of which there are no scenarios", languageEnv, h.language)
	}
	if h.cli == "" {
		t.Fatal(cliEnv + " is not set")
	}
	var err error
	if h.bridge, err = filepath.Abs("../../bin/copilot-grpc"); err != nil {
		t.Fatal(err)
	}
	if h.model, err = offlinemodel.Start(t.Context(), offlinemodel.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.model.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	// It unpacks itself on the way.
	out, err := h.run(t.Context(), nil, h.cli, "--no-auto-update", "--version")
	if h.version = regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out)); h.version == "" {
		t.Fatalf("the CLI does not say its version: %q (%v)", out, err)
	}
	return h
}

// scenarios lists those to play.
func (h *hall) scenarios(t *testing.T) []string {
	t.Helper()
	out, err := h.run(t.Context(), nil, languages[h.language].command...)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(out))
	file := os.Getenv(listEnv)
	if file == "" {
		return known
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "#")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !slices.Contains(known, name) {
			t.Fatalf("%s lists %q, which is no scenario", file, name)
		}
		listed = append(listed, name)
	}
	return listed
}

// side is what a scenario runs on.
type side struct {
	name string
	// command plays the CLI; env is set for it.
	command []string
	env     map[string]string
}

func (h *hall) sides() []side {
	direct := side{name: "direct", command: []string{h.cli}}
	if *control {
		return []side{direct, {name: "control", command: direct.command}}
	}
	return []side{direct,
		{name: "shim", command: []string{h.bridge, "shim"}, env: map[string]string{"COPILOT_GRPC_CLI": h.cli}}}
}

// compare plays a scenario on both sides at once. Not as subtests: the comparison would wait
// for its turn among all the other scenarios.
func (h *hall) compare(t *testing.T, name string) {
	t.Helper()
	sides := h.sides()
	records, errs := make([]any, len(sides)), make([]error, len(sides))
	var playing sync.WaitGroup
	for i, s := range sides {
		playing.Go(func() { records[i], errs[i] = h.record(t.Context(), name, s) })
	}
	playing.Wait()
	for i, s := range sides {
		if errs[i] != nil {
			t.Errorf("on side %s: %v", s.name, errs[i])
		} else if testing.Verbose() {
			t.Logf("%s: %s", s.name, compact(records[i]))
		}
	}
	if t.Failed() {
		return
	}
	excused := excuses(t, h.language, h.version, name)
	for _, difference := range differences("", records[0], records[1]) {
		path, _, _ := strings.Cut(difference, ": ")
		if !excused.match(path) {
			t.Errorf("%s and %s differ at %s", sides[0].name, sides[1].name, difference)
		}
	}
}

// record plays a scenario on one side.
func (h *hall) record(ctx context.Context, name string, s side) (any, error) {
	work, err := os.MkdirTemp("", "sdk-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	script, err := offlinemodel.Load("model.yaml")
	if err != nil {
		return nil, err
	}
	scope, err := h.model.NewScope(s.name+"-"+name, script)
	if err != nil {
		return nil, err
	}
	defer scope.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args, err := json.Marshal(s.command[1:])
	if err != nil {
		return nil, err
	}
	env := map[string]string{
		"SDK_MODEL": scope.URL(), "SDK_WORK": work, "SDK_CLI": s.command[0], "SDK_CLI_ARGS": string(args),
		"SDK_CLI_VERSION": h.version,
		"SDK_MCP_COMMAND": self, "SDK_MCP_URL": h.mcp + "/open", "SDK_MCP_OAUTH_URL": h.mcp + "/guarded",
	}
	maps.Copy(env, s.env)
	out, err := h.run(ctx, env, append(slices.Clone(languages[h.language].command), name)...)
	if err != nil {
		return nil, err
	}
	return parseRecord(out, map[string]string{work: "work", h.home: "user", scope.URL(): "model", h.mcp: "mcp"})
}

// run runs a program to its end and returns its output. Nothing that it started outlives it.
func (h *hall) run(ctx context.Context, env map[string]string, command ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = languages[h.language].dir
	cmd.Env = append(os.Environ(), "HOME="+h.home, "XDG_CACHE_HOME=", "XDG_DATA_HOME=", "XDG_STATE_HOME=",
		"XDG_RUNTIME_DIR=", cliEnv+"=")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 20 * time.Second
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // as a rule no process is left
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, tail(errs.String()))
	}
	return out, nil
}

// tail is the end of a text.
func tail(text string) string {
	const enough = 4000
	return text[max(0, len(text)-enough):]
}

// excuse is what may differ in a scenario.
type excuse []*regexp.Regexp

func (e excuse) match(path string) bool {
	return slices.ContainsFunc(e, func(one *regexp.Regexp) bool { return one.MatchString(path) })
}

// excuses reads what may differ in a scenario: rows of excuses.txt, "language scenario
// path-expression reason", where the language may be that on one version of the CLI. In control runs there is none:
// what differs there is no proof
// of anything and must not be in a record.
func excuses(t *testing.T, language, version, scenario string) excuse {
	t.Helper()
	file, err := os.Open("excuses.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found excuse
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 4 {
			t.Fatal(fmt.Errorf("excuses.txt: a row without a reason: %q", lines.Text()))
		}
		of := []string{"*", language, "*@" + version, language + "@" + version}
		if slices.Contains(of, fields[0]) && fields[1] == scenario && !*control {
			found = append(found, regexp.MustCompile(fields[2]))
		}
	}
	return found
}
