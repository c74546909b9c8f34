package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// result is how a run ended.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the program with an environment of NAME=VALUE.
func run(t *testing.T, env []string, stdin string, args ...string) result {
	t.Helper()
	p, stdout, stderr := newProgram(env, stdin)
	code := p.main(t.Context(), args)
	return result{code, stdout.String(), stderr.String()}
}

func newProgram(env []string, stdin string) (p *program, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &program{
		version: "v1", stdin: strings.NewReader(stdin), stdout: &output{w: stdout}, stderr: stderr, patience: patience,
		again: context.Background(),
		getenv: func(name string) string {
			for _, entry := range env {
				if value, ok := strings.CutPrefix(entry, name+"="); ok {
					return value
				}
			}
			return ""
		},
		environ: func() []string { return env }, processors: func(int) {}, configDir: configDir(env),
	}, stdout, stderr
}

// socket returns a path short enough for a socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}

// server runs an App with a fake CLI and returns its target.
func server(t *testing.T) string {
	t.Helper()
	return serverOf(t, fakecli.Script{})
}

// serverOf is a server whose fake CLI has a script.
func serverOf(t *testing.T, script fakecli.Script) string {
	t.Helper()
	cli := fakecli.New(fakecli.Options{Script: script})
	t.Cleanup(cli.Close)
	a, err := app.New(t.Context(), app.Config{Listen: []string{"unix:" + socket(t)}, Version: "v1"},
		app.WithRunner(runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
			return cli.Connect(), nil
		})))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return a.Target()
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		env  []string
		code int
		want string
	}{
		"nothing":         {nil, nil, exitUsage, "Commands:"},
		"unknown command": {[]string{"sever"}, nil, exitUsage, `no command "sever"`},
		"unknown flag":    {[]string{"serve", "--port", "1"}, nil, exitUsage, "-port"},
		"argument":        {[]string{"serve", "now"}, nil, exitUsage, `"now"`},
		"bad value":       {[]string{"serve", "--callback-timeout", "long"}, nil, exitUsage, `"long"`},
		"bad variable": {[]string{"serve"}, []string{"COPILOT_GRPC_CALLBACK_TIMEOUT=long"}, exitUsage,
			"COPILOT_GRPC_CALLBACK_TIMEOUT"},
		"bad environment":   {[]string{"serve", "--env", "X"}, nil, exitUsage, "NAME=VALUE"},
		"bad configuration": {[]string{"serve", "--listen", "0.0.0.0:1"}, nil, exitUsage, "loopback"},
		"untold token": {[]string{"serve", "--listen", "localhost:0", "--log-format", "json"}, nil, exitUsage,
			"--token"},
		"no script":       {[]string{"serve", "--offline-model", "/nowhere"}, nil, exitFailed, `"default"`},
		"no such method":  {[]string{"call", "RuntimeService/Pong"}, nil, exitUsage, `"Pong"`},
		"no such service": {[]string{"call", "PingService/Ping"}, nil, exitUsage, `"PingService"`},
		"no method":       {[]string{"call", "Pong"}, nil, exitUsage, `did you mean "Ping"?`},
		"no JSON":         {[]string{"call", "RuntimeService/Ping", "{"}, nil, exitUsage, "not JSON"},
		"no such field":   {[]string{"call", "RuntimeService/Ping", `{"x":1}`}, nil, exitUsage, `"x"`},
		"no server": {[]string{"call", "--target", "unix:/nowhere", "RuntimeService/Ping"}, nil, exitNoServer,
			"Start one with \"copilot-grpc serve\""},
		"URL":            {[]string{"call", "--target", "HTTP://host:1/a", "RuntimeService/Ping"}, nil, exitUsage, "write host:1, unix:/path"},
		"another scheme": {[]string{"call", "--target", "foo://host", "RuntimeService/Ping"}, nil, exitUsage, "write host:port, unix:/path"},
		"no target":      {[]string{"call", "--target", "", "RuntimeService/Ping"}, nil, exitUsage, "the target is empty: write host:port"},
		"a name alone": {[]string{"call", "--target", "localhost", "RuntimeService/Ping"}, nil, exitNoServer,
			"No server answers at localhost, port 443 (a target is HOST:PORT or unix:PATH). Start one"},
		"URL of a bridge": {[]string{"shim", "--target", "https://host:1", "--stdio"}, nil, exitUsage, "write host:1, unix:/path"},
	} {
		r := run(t, tc.env, "", append(tc.args, flagsFor(t, tc.args)...)...)
		if r.code != tc.code || !strings.Contains(r.stderr, tc.want) || r.stdout != "" {
			t.Errorf("%s: code %d, stdout %q, stderr %q; want code %d and %q", name, r.code, r.stdout, r.stderr,
				tc.code, tc.want)
		}
	}
}

// flagsFor keeps a serve that should not get that far off the user's socket.
func flagsFor(t *testing.T, args []string) []string {
	t.Helper()
	if len(args) == 3 && args[1] == "--offline-model" {
		return []string{"--listen", "unix:" + socket(t)}
	}
	return nil
}

func TestHelp(t *testing.T) {
	t.Parallel()
	overview := run(t, nil, "", "help")
	for _, c := range commands() {
		if !strings.Contains(overview.stdout, "\n  "+c.name) {
			t.Errorf("help does not list %s", c.name)
		}
	}
	eachCommand(commands(), "", func(_ command, path string) {
		name := strings.Fields(path)
		for _, args := range [][]string{append([]string{"help"}, name...), append(name, "-h"), append(name, "--help")} {
			r := run(t, nil, "", args...)
			if r.code != exitOK || !strings.HasPrefix(r.stdout, "Usage: copilot-grpc "+path) || r.stderr != "" ||
				strings.Count(r.stdout, "Usage:") != 1 {
				t.Errorf("%q: code %d, %q, %q", args, r.code, r.stdout, r.stderr)
			}
		}
	})
	table := run(t, nil, "", "serve", "-h").stdout
	for _, want := range []string{"--offline-model script", "COPILOT_GRPC_OFFLINE_MODEL", "--drain-grace duration",
		"5s"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing in\n%s", want, table)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{"version", "--version"} {
		if r := run(t, nil, "", arg); r.code != exitOK || !strings.HasPrefix(r.stdout, "copilot-grpc v1 (") {
			t.Errorf("%s: %+v", arg, r)
		}
	}
}

// fullDisk is an output that takes nothing.
type fullDisk struct{}

// Write implements io.Writer.
func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A text that cannot be printed is no success.
func TestOutputFails(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"version", "--version", "help", "--help", "help run", "run -h", "serve --help",
		"sessions -h", "completion bash", "completion -h", "describe Ping"} {
		p, _, stderr := newProgram(nil, "")
		p.stdout = &output{w: fullDisk{}}
		if code := p.main(t.Context(), strings.Fields(args)); code != exitFailed ||
			!strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%s: code %d, %q", args, code, stderr)
		}
	}
}

// A flag wins over its variable, and the variable over the default.
func TestFlagsAndEnvironment(t *testing.T) {
	t.Parallel()
	p, _, _ := newProgram([]string{
		"COPILOT_GRPC_LISTEN=unix:/a, unix:/b", "COPILOT_GRPC_TOKEN=from the environment", "COPILOT_GRPC_RAW=true",
		"COPILOT_GRPC_LOG_LEVEL=debug", "COPILOT_GRPC_ENV=A=b=c",
	}, "")
	f := p.newServerCommand("x", "", "info")
	c := f.config
	err := f.read(p,
		[]string{"--log-level", "warn", "--listen", "unix:/c", "--listen=unix:/d", "-max-prompt-bytes", "7"})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Listen, " "); got != "unix:/c unix:/d" {
		t.Errorf("listen %q", got)
	}
	if c.Token != "from the environment" || !c.Raw || c.LogLevel != "warn" || c.MaxPromptBytes != 7 ||
		c.Env["A"] != "b=c" {
		t.Errorf("%+v", c)
	}
	if c.MaxAttachmentBytes != app.DefaultConfig().MaxAttachmentBytes {
		t.Errorf("no default: %+v", c)
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	target := server(t)
	env := []string{"COPILOT_GRPC_TARGET=" + target}

	r := run(t, env, "", "call", "RuntimeService/GetServerInfo")
	var info struct{ Version string }
	if err := json.Unmarshal([]byte(r.stdout), &info); err != nil || info.Version != "v1" || r.code != exitOK {
		t.Errorf("a call: %+v, %v", r, err)
	}
	r = run(t, env, `{"message":"hello"}`, "call", "/copilot.bridge.v1.RuntimeService/Ping", "-")
	if r.code != exitOK || !strings.Contains(r.stdout, "hello") {
		t.Errorf("a request on stdin: %+v", r)
	}
	r = run(t, env, "", "call", "SessionService/Run", `{"create":{},"prompt":{"text":"hi"}}`)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if r.code != exitOK || !strings.HasPrefix(lines[0], `{"started":`) ||
		!strings.Contains(lines[len(lines)-1], "TURN_STATUS_COMPLETED") {
		t.Errorf("a stream of replies: %+v", r)
	}
	r = run(t, env, `{"start":{"create":{"session_id":"s1"}}}`, "call", "CallbackService/Attach")
	if !strings.Contains(r.stdout, `"sessionId":"s1"`) {
		t.Errorf("streams both ways: %+v", r)
	}
	r = run(t, env, "", "call", "SessionService/GetSession", `{"session_id":"nope"}`)
	if r.code != exitFailed || !strings.HasPrefix(r.stderr, "NotFound: ") ||
		!strings.Contains(r.stderr, "SESSION_NOT_FOUND") {
		t.Errorf("an error: %+v", r)
	}
}

func TestCallLists(t *testing.T) {
	t.Parallel()
	r := run(t, nil, "", "call")
	for _, want := range []string{"copilot.bridge.v1.SessionService/Run\n", "grpc.health.v1.Health/Check\n"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in %q", want, r.stdout)
		}
	}
}

// serve says where it listens, and ends in order.
func TestServe(t *testing.T) {
	t.Parallel()
	p, _, stderr := newProgram(nil, "")
	ctx, stop := context.WithCancel(t.Context())
	stop() // at once: what is looked at comes before
	path := socket(t)
	if code := p.main(ctx,
		[]string{"serve", "--listen", "unix:" + path + ",localhost:0", "--offline-model", "default", "--data-dir",
			t.TempDir()}); code != exitOK {
		t.Errorf("code %d: %s", code, stderr)
	}
	for _, want := range []string{
		"msg=listening address=unix:" + path, "address=127.0.0.1:", "export COPILOT_GRPC_TOKEN=", "http://127.0.0.1:",
		"grpcurl -plaintext unix:" + path + " list", "chat --target unix:" + path, "run Hello --target unix:" + path,
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is missing in %s", want, stderr)
		}
	}
	if _, err := os.Lstat(path); err == nil {
		t.Errorf("%q is still there", path)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(script, []byte("ruels: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, nil, "", "doctor", "--cli", "/nowhere/copilot", "--data-dir", t.TempDir(), "--listen",
		"unix:"+socket(t), "--offline-model", script)
	if r.code != exitFailed || r.stderr != "" {
		t.Errorf("code %d, %q", r.code, r.stderr)
	}
	for _, want := range []string{"MISSING  copilot CLI: ", "fix: correct --cli", "ok       socket: ",
		"MISSING  offline model: ", `"ruels"`} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	if r := run(t, nil, "", "doctor", "--listen", "unix:", "--log-level", "loud"); r.code != exitFailed ||
		!strings.Contains(r.stdout, "MISSING  settings: flag --listen: ") ||
		!strings.Contains(r.stdout, "MISSING  settings: flag --log-level: ") {
		t.Errorf("a bad configuration: %+v", r)
	}
}

// The findings of doctor as JSON.
func TestDoctorJSON(t *testing.T) {
	t.Parallel()
	env := []string{"COPILOT_GRPC_LISTN=x"}
	for _, flags := range [][]string{{"--json"}, {"-o", "json"}, {"-o", "jsonl"}} {
		r := run(t, env, "", append([]string{"doctor", "--cli", "/nowhere/copilot", "--offline-model", "default", "--listen",
			"unix:" + socket(t), "--data-dir", t.TempDir()}, flags...)...)
		text := r.stdout
		if flags[len(flags)-1] == "jsonl" {
			text = "[" + strings.ReplaceAll(strings.TrimSpace(text), "\n", ",") + "]"
		}
		type finding struct{ Level, Subject, Text, Remedy string }
		var all []finding
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatalf("%v: %v in %s", flags, err, text)
		}
		want := map[string]finding{
			"environment": {"warning", "environment", "no setting reads the variable COPILOT_GRPC_LISTN",
				"rename it to COPILOT_GRPC_LISTEN, or unset it"},
			"offline model": {"ok", "offline model", "the built-in script", ""},
		}
		for _, f := range all {
			if w, ok := want[f.Subject]; ok && f != w {
				t.Errorf("%v: %+v, want %+v", flags, f, w)
			}
			delete(want, f.Subject)
		}
		if r.code != exitFailed || len(want) > 0 || !strings.Contains(text, `"error"`) {
			t.Errorf("%v: code %d, without %v:\n%s", flags, r.code, want, r.stdout)
		}
	}
}

func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"/run/x-1.sock": "/run/x-1.sock", "/a b": "'/a b'", "it's": `'it'\''s'`,
		"$x": "'$x'"} {
		if got := quote(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// configDir is [os.UserConfigDir] of Linux with an environment.
func configDir(env []string) func() (string, error) {
	return func() (string, error) {
		for _, entry := range env {
			if dir, ok := strings.CutPrefix(entry, "XDG_CONFIG_HOME="); ok {
				return dir, nil
			}
		}
		return "", errors.New("neither $XDG_CONFIG_HOME nor $HOME are defined")
	}
}
