package fakecli_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
)

// child is the executable form, running.
type child struct {
	*exec.Cmd
	io.WriteCloser // its input
	io.ReadCloser  // its output
	stderr         bytes.Buffer
}

func (c *child) Close() error { return errors.Join(c.WriteCloser.Close(), c.ReadCloser.Close()) }

// run starts the executable; it is gone when the test ends.
func run(t *testing.T, env []string, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.CommandContext(t.Context(), os.Args[0],
		append([]string{"--headless", "--no-auto-update", "--no-auto-login"}, args...)...)}
	c.Env = append(env, "FAKECOPILOT_TEST_EXEC=1")
	c.Stderr = &c.stderr
	var err error
	if c.WriteCloser, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if c.ReadCloser, err = c.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func TestExecutableStdio(t *testing.T) {
	t.Parallel()
	home, oracle := t.TempDir(), filepath.Join(t.TempDir(), "oracle.jsonl")
	env := []string{"COPILOT_HOME=" + home, "FAKECOPILOT_ORACLE=" + oracle,
		`FAKECOPILOT_SCRIPT={"prompts":[{"turns":[{"text":"from the script"}]}]}`}
	p := run(t, env, "--stdio")
	c := dial(t, p, rpcconn.Options{})
	if got := c.must("connect",
		`{}`); got != `{"ok":true,"protocolVersion":3,"version":"1.0.102","taskKinds":["agent","shell"]}` {
		t.Errorf("connect: %s", got)
	}
	c.must("session.create", `{"sessionId":"s"}`)
	c.send("x")
	if e := c.next("assistant.message"); e.field("content") != "from the script" {
		t.Errorf("message %s", e.Data)
	}
	c.next("session.idle")
	_ = p.WriteCloser.Close() // the end of its input ends it
	<-c.Done()
	if err := p.Wait(); err != nil {
		t.Errorf("ended with %v, %s", err, p.stderr.String())
	}
	if log, err := os.ReadFile(oracle); err != nil || !bytes.Contains(log, []byte(`"type":"session.idle"`)) {
		t.Errorf("oracle: %v, %d bytes", err, len(log))
	}
	if history, err := os.ReadFile(filepath.Join(home, "session-state", "s", "events.jsonl")); err != nil ||
		!bytes.Contains(history, []byte(`"session.shutdown"`)) {
		t.Errorf("history: %v, %s", err, history)
	}
}

func TestExecutableTCP(t *testing.T) {
	t.Parallel()
	p := run(t, []string{"COPILOT_CONNECTION_TOKEN=secret"}, "--port", "0")
	line, err := bufio.NewReader(p.ReadCloser).ReadString('\n')
	port, found := strings.CutPrefix(strings.TrimSpace(line), "CLI server listening on port ")
	if err != nil || !found {
		t.Fatalf("first line %q, %v", line, err)
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, conn, rpcconn.Options{})
	c.fails("ping", `{}`, "AUTHENTICATION_REQUIRED")
	c.fails("connect", `{"token":"wrong"}`, "AUTHENTICATION_FAILED")
	c.must("connect", `{"token":"secret"}`)
	c.must("ping", `{}`)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if err := p.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestExecutableEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		script string
		args   []string
		code   int
		out    string
	}{
		"version": {`{"version":"1.0.81"}`, []string{"--version"}, 0, "GitHub Copilot CLI 1.0.81.\n"},
		"crash": {`{"start":{"crash":true,"exitCode":7,"stderr":"cannot start\n"}}`, []string{"--stdio"}, 7,
			"cannot start\n"},
		"bad script":   {`{"nonsense":1}`, []string{"--stdio"}, 1, "parse script"},
		"unknown flag": {``, []string{"--nonsense"}, 1, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := run(t, []string{"FAKECOPILOT_SCRIPT=" + tc.script}, tc.args...)
			out, _ := io.ReadAll(p.ReadCloser)
			_ = p.Wait()
			if code := p.ProcessState.ExitCode(); code != tc.code ||
				!strings.Contains(string(out)+p.stderr.String(), tc.out) {
				t.Errorf("exit code %d, output %q %q", code, out, p.stderr.String())
			}
		})
	}
}

func TestExecutableExitsInACall(t *testing.T) {
	t.Parallel()
	p := run(t, []string{`FAKECOPILOT_SCRIPT={"faults":[{"method":"ping","kind":"exit","exitCode":9}]}`}, "--stdio")
	c := dial(t, p, rpcconn.Options{})
	if _, err := c.Call(t.Context(), "ping", nil); !errors.Is(err, rpcconn.ErrPeerClosed) ||
		errors.Is(err, rpcconn.ErrNotSent) {
		t.Errorf("call: %v", err)
	}
	_ = p.Wait()
	if code := p.ProcessState.ExitCode(); code != 9 {
		t.Errorf("exit code %d", code)
	}
}
