package deploy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// TestReadmeGrpcurl runs the grpcurl lines of the README and of the pages as they are written.
func TestReadmeGrpcurl(t *testing.T) {
	t.Parallel()
	lines := markedLines(t, "grpcurl", "README.md", "docs/grpcurl.md", "docs/console.md")
	if len(lines) < 19 {
		t.Fatalf("the README and the pages have %d lines to run: %q", len(lines), lines)
	}
	bin := grpcurl(t) // first: it may have to be built
	r := harness.NewOwnFixture(t, harness.Echo,
		harness.HostConfig{Change: func(c *app.Config) { c.OfflineModel = app.OfflineDefault }})
	tour := &tour{Fixture: r, vars: map[string]string{
		"SOCK": strings.TrimPrefix(r.Host.Target, "unix:"), "PATH": filepath.Dir(bin) + ":" + os.Getenv("PATH"),
	}}
	for _, line := range lines {
		t.Log(line)
		tour.follow(line)
	}
}

// markedLines returns the lines of the blocks with a mark, by page. Each page must have some.
func markedLines(t *testing.T, mark string, pages ...string) (lines []string) {
	t.Helper()
	marked := regexp.MustCompile("(?s)<!-- test:" + mark + " -->\n```sh\n(.*?)\n```")
	for _, page := range pages {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := marked.FindAllSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no marked block", page)
		}
		for _, block := range blocks {
			lines = append(lines, strings.Split(string(block[1]), "\n")...)
		}
	}
	return lines
}

// grpcurl is the path of the executable, of the version that the tools are pinned to.
func grpcurl(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../internal/tools/go.mod", "-n",
		"grpcurl").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("grpcurl: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// tour runs the lines of the pages.
type tour struct {
	*harness.Fixture
	vars map[string]string
}

// follow runs one line and checks that it prints the reply that the page announces.
func (s *tour) follow(line string) {
	s.T.Helper()
	switch {
	case strings.Contains(line, "/ListPending"):
		// A person is slower than the CLI; a test has to wait until it asks.
		s.Adopt(s.Client.Session("tour")).WaitFor("permission.requested")
		var list struct{ Callbacks []struct{ CallbackID string } }
		if err := json.Unmarshal(s.run(line), &list); err != nil || len(list.Callbacks) != 1 {
			s.T.Fatalf("%s\ngives %v, %v", line, list, err)
		}
		s.vars["CALLBACK"] = list.Callbacks[0].CallbackID
	case strings.Contains(line, "/ListRuntimes"):
		var list struct {
			Runtimes []struct{ RuntimeID, State string }
		}
		if err := json.Unmarshal(s.run(line), &list); err != nil {
			s.T.Fatalf("%s\ngives %v, %v", line, list, err)
		}
		for _, rt := range list.Runtimes {
			if rt.State == "RUNTIME_STATE_READY" {
				s.vars["RUNTIME"] = rt.RuntimeID
			}
		}
	case strings.Contains(line, "/WatchServerLog"):
		s.watch(line, "caughtUp")
	case strings.Contains(line, "/Subscribe"):
		s.watch(line, "session.idle")
	default:
		out := bytes.TrimSpace(s.run(line))
		calls := strings.Contains(line, "/") && !strings.Contains(line, " list") && !strings.Contains(line, " describe")
		if len(out) == 0 || calls && !isJSON(out) {
			s.T.Errorf("%s\ngives\n%s", line, out)
		}
	}
}

// isJSON reports whether text is a sequence of JSON objects.
func isJSON(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var object map[string]json.RawMessage
		if err := dec.Decode(&object); errors.Is(err, io.EOF) {
			return true
		} else if err != nil {
			return false
		}
	}
}

func (s *tour) command(line string) *exec.Cmd {
	cmd := exec.CommandContext(s.Ctx, "bash", "-c", "exec "+line)
	for name, value := range s.vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

func (s *tour) run(line string) []byte {
	s.T.Helper()
	cmd := s.command(line)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		s.T.Fatalf("%s\nfails: %v\n%s", line, err, failure.Bytes())
	}
	return out
}

// watch runs a streaming call until its output contains the text.
func (s *tour) watch(line, until string) {
	s.T.Helper()
	cmd := s.command(line)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	found := false
	for text := bufio.NewScanner(out); !found && text.Scan(); {
		found = strings.Contains(text.Text(), until)
	}
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	if err := cmd.Wait(); !found {
		s.T.Errorf("%s\nended without saying %q: %v", line, until, err)
	}
}
