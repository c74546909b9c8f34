package shim

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// standIns are the two ways to run a CLI: itself, and the shim with that CLI behind it.
func standIns(t *testing.T) (direct, shim []string) {
	t.Helper()
	harness.SkipWithoutCLI(t)
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	cli := os.Getenv(harness.CLIEnv)
	return []string{cli}, []string{path, "shim", "--cli", cli}
}

// processResult is how a run of a CLI, or of a shim, ended.
type processResult struct {
	Code           int
	Stdout, Stderr string
}

// runCLI runs a command to its end, with an empty standard input. home is its user's folder, and
// that for temporary files.
func runCLI(t *testing.T, home string, command []string, args ...string) processResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], append(command[1:len(command):len(command)], args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TERM=dumb", "HOME=" + home, "COPILOT_HOME=" + t.TempDir(),
		"TMPDIR=" + home}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return processResult{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestShimEndsAsTheCLI runs command lines with which the CLI ends at its start. The shim has to
// write the same and end with the same code, and must not say that it listens.
func TestShimEndsAsTheCLI(t *testing.T) {
	t.Parallel()
	direct, shim := standIns(t)
	home := harness.RealDir(t)
	for _, command := range [][]string{direct, shim} { // each unpacks itself once
		runCLI(t, home, command, "--headless", "--no-auto-update", "--stdio")
	}
	_, version, _ := strings.Cut(runCLI(t, home, direct, "--no-auto-update", "--version").Stdout, "CLI ")
	version, _, _ = strings.Cut(version, ".\n")
	if _, ok := quirks.ParseVersion(version); !ok {
		t.Fatalf("the CLI has the version %q", version)
	}
	for _, args := range []string{
		"--no-such-flag --headless --no-auto-update --stdio",
		"--no-such-flag --headless --no-auto-update --port 0",
		"--headless --no-auto-update --stdio --log-level bogus",
		"--headless --no-auto-update --port abc",
		"--headless --no-auto-update --stdio --session-idle-timeout soon",
		"nonsense --headless --no-auto-update --stdio",
		"--version",
		"--no-auto-update --version",
	} {
		if strings.HasSuffix(args, "--port abc") && quirks.AcceptsAnyPort.In(version) {
			continue // it does not end
		}
		t.Run(args, func(t *testing.T) {
			want := runCLI(t, home, direct, strings.Fields(args)...)
			got := runCLI(t, home, shim, strings.Fields(args)...)
			if got != want {
				t.Errorf("through the shim %+v, want %+v", got, want)
			}
			if left, err := filepath.Glob(filepath.Join(home, "copilot-grpc-shim-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind %q, %v", left, err)
			}
		})
	}
}

// exchange starts a command, shakes hands, writes frames in one piece and returns the replies by id, as the process
// wrote them, and the result of its end. Its input stays open if the test waits for its end: it has to end without
// that.
func exchange(t *testing.T, tmp string, env, command, methods []string) (answers map[int]string, ended error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:len(command):len(command)],
		"--headless", "--no-auto-update", "--no-auto-login", "--stdio")...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TERM=dumb", "HOME=" + tmp, "COPILOT_HOME=" + t.TempDir(),
		"TMPDIR=" + tmp}, env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	frame := func(id int, method string) string {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{}}`, id, method)
		return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	if _, err := io.WriteString(in, frame(0, "connect")); err != nil {
		t.Fatal(err)
	}
	frames := bufio.NewReader(out)
	if _, _, ok := readAnswer(t, frames); !ok {
		t.Fatal("connect is not answered")
	}
	var all strings.Builder
	for i, method := range methods {
		all.WriteString(frame(i+1, method))
	}
	if _, err := io.WriteString(in, all.String()); err != nil {
		t.Fatal(err)
	}
	answers = map[int]string{}
	for {
		id, text, ok := readAnswer(t, frames)
		if !ok {
			return answers, cmd.Wait()
		}
		answers[id] = text
		if len(answers) == len(methods) && !slices.Contains(methods, "runtime.shutdown") {
			_ = in.Close() // ends it
		}
		if methods[id-1] == "runtime.shutdown" {
			// SDKs kill the process at this answer.
			if left, err := filepath.Glob(filepath.Join(tmp, "copilot-grpc-shim-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind %q, %v", left, err)
			}
		}
	}
}

// readAnswer reads the next answer to a request; !ok is the end of the stream.
func readAnswer(t *testing.T, r *bufio.Reader) (id int, text string, ok bool) {
	t.Helper()
	for {
		length := 0
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return 0, "", false
			}
			line = strings.TrimSpace(line)
			if line == "" {
				break
			}
			if name, value, ok := strings.Cut(line, ":"); ok && strings.EqualFold(name, "content-length") {
				length, _ = strconv.Atoi(strings.TrimSpace(value)) // 0 fails below
			}
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(r, body); err != nil {
			t.Fatal(err)
		}
		var m struct {
			ID            *int
			Result, Error json.RawMessage
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		if m.ID != nil {
			return *m.ID, cmp.Or(string(m.Error), string(m.Result), "null"), true
		}
	}
}

// TestShimShutdown asks for the end of the process, twice, and for other things with it. Both
// take requests up concurrently, so a ping may still come before the end; at some time one comes
// after it. By the time of the answer nothing may be left of a private bridge.
func TestShimShutdown(t *testing.T) {
	t.Parallel()
	direct, shim := standIns(t)
	methods := []string{"runtime.shutdown", "ping", "no.such", "ping", "runtime.shutdown", "ping"}
	const refused = `{"code":-32000,"message":"SERVER_SHUTTING_DOWN"}`
	for _, command := range [][]string{direct, shim} {
		t.Run(filepath.Base(command[0]), func(t *testing.T) {
			tmp, seen := harness.RealDir(t), false
			for range 20 {
				answers, ended := exchange(t, tmp, nil, command, methods)
				if ended != nil {
					t.Errorf("ended with %v", ended)
				}
				for i, method := range methods {
					got := answers[i+1]
					ok := got == "null"
					switch method {
					case "ping":
						ok = got == refused || strings.Contains(got, `"pong"`)
						seen = seen || got == refused
					case "no.such":
						ok = got == `{"code":-32601,"message":"Unhandled method no.such"}`
					}
					if !ok {
						t.Errorf("%s: %s", method, got)
					}
				}
				if seen || t.Failed() {
					return
				}
			}
			t.Errorf("no ping was ever refused with %s", refused)
		})
	}
}
