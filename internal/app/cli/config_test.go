package cli

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// configFile writes a file of settings.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPrintConfig(t *testing.T) {
	t.Parallel()
	path := configFile(t, "listen: unix:/run/x.sock\nlog_level: debug\ngithub_token: secret-1\nenv: {A: secret-2}\n")
	r := run(t, []string{"COPILOT_GRPC_LOG_LEVEL=warn", "COPILOT_GRPC_CONFIG=" + path}, "", "serve", "--print-config",
		"--max-prompt-bytes", "7")
	if r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{
		"listen: [unix:/run/x.sock] # " + path + ":1\n",
		"log_level: warn # environment variable COPILOT_GRPC_LOG_LEVEL\n",
		"max_prompt_bytes: 7 # flag --max-prompt-bytes\n", "# github_token: not shown # " + path + ":3\n",
		"# env: not shown, A # " + path + ":4\n",
		"fsync: interval # default\n",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	if strings.Contains(r.stdout+r.stderr, "secret-") {
		t.Errorf("a secret is printed: %+v", r)
	}
	if again := run(t, nil, "", "serve", "--print-config", "--config", configFile(t, r.stdout)); again.code != exitOK {
		t.Errorf("what is printed is no file of settings: %+v", again)
	}
}

// A misspelt variable does not go unnoticed. Variables of Kubernetes and of other commands are no misspelt ones.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	p, _, _ := newProgram([]string{"COPILOT_GRPC_LISTN=x", "COPILOT_GRPC_LISTEN=x", "COPILOT_GRPC_TARGET=x",
		"COPILOT_GRPC_BINARY=x", "COPILOT_GRPC_RUNTIME=x", "COPILOT_GRPC_SERVICE_HOST=10.0.0.1", "COPILOT_GRPC_PORT_7443_TCP=x", "HOME=/",
		"COPILOT_GRPC_QQQQQQQQ="}, "")
	want := map[string]string{"COPILOT_GRPC_LISTN": "COPILOT_GRPC_LISTEN", "COPILOT_GRPC_QQQQQQQQ": ""}
	got := unknownVariables(p)
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	p, _, stderr := newProgram([]string{"COPILOT_GRPC_LISTN=x"}, "")
	p.main(ctx, []string{"serve", "--listen", "unix:" + socket(t), "--data-dir", t.TempDir()})
	if !strings.Contains(stderr.String(), "name=COPILOT_GRPC_LISTN did_you_mean=COPILOT_GRPC_LISTEN") {
		t.Errorf("no warning: %s", stderr)
	}
	env := []string{"XDG_CONFIG_HOME=" + t.TempDir(), "COPILOT_GRPC_TARGT=x", "COPILOT_GRPC_QQQQQQQQ=x"}
	const warning = "warning: no setting reads the variable COPILOT_GRPC_QQQQQQQQ\n" +
		"warning: no setting reads the variable COPILOT_GRPC_TARGT; did you mean COPILOT_GRPC_TARGET?\n"
	if r := run(t, env, "", "context", "list", "-o", "json"); r.code != exitOK || r.stdout != "[]\n" ||
		!strings.HasPrefix(r.stderr, warning) {
		t.Errorf("a client command: %+v", r)
	}
}

// An error names the setting and the source of its value.
func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file string
		args []string
		want []string
	}{
		"unknown key": {"lisetn: x\n", nil, []string{"config.yaml:1", `did you mean "listen"?`}},
		"bad value": {"\nmax_prompt_bytes: lots\n", nil,
			[]string{"config.yaml:2", "max_prompt_bytes", `"lots"`}},
		"bad combination": {"listen: 0.0.0.0:1\n", nil, []string{"listen: ", "loopback", "config.yaml:1"}},
		"of a flag": {"", []string{"--log-level", "loud"},
			[]string{`copilot-grpc serve: flag --log-level: log level "loud" is not one of`}},
		"no value of a flag": {"", []string{"--max-runtimes", "many"},
			[]string{"copilot-grpc serve: flag --max-runtimes: \"many\" is not a number\n"}},
		"a misspelt flag":  {"", []string{"--lisetn", "x"}, []string{"did you mean --listen?"}},
		"printed nonsense": {"log_level: loud\n", []string{"--print-config"}, []string{"log_level: ", "config.yaml:1"}},
	} {
		r := run(t, nil, "", append([]string{"serve", "--config", configFile(t, tc.file)}, tc.args...)...)
		for _, want := range tc.want {
			if r.code == exitOK || !strings.Contains(r.stderr, want) {
				t.Errorf("%s: %+v, want %q", name, r, want)
			}
		}
	}
	for want, line := range map[string][]string{
		"flag --output: invalid value \"y\": want one of text, json, jsonl\n":                            {"run", "x", "-o", "y"},
		"environment variable COPILOT_GRPC_OUTPUT: invalid value \"y\": want one of text, json, jsonl\n": {"run", "x"},
	} {
		if r := run(t, []string{"COPILOT_GRPC_OUTPUT=y"}, "", line...); r.code != exitUsage ||
			!strings.HasPrefix(r.stderr, "copilot-grpc run: "+want) {
			t.Errorf("%q: %+v, want %q", line, r, want)
		}
	}
	// All mistakes are reported at once, in the file and elsewhere.
	path := configFile(t, "lisetn: x\nmax_runtimes: many\nlog_level: loud\nkill_rss: -1\nfsync: never\n")
	r := run(t, []string{"COPILOT_GRPC_MAX_PROMPT_BYTES=lots"}, "", "serve", "--config", path, "--log-format", "xml")
	want := "copilot-grpc serve: 6 settings are wrong:\n" +
		path + ":1: there is no setting \"lisetn\"; did you mean \"listen\"?\n" +
		path + ":2: max_runtimes: \"many\" is not a number\n" +
		"environment variable COPILOT_GRPC_MAX_PROMPT_BYTES: \"lots\" is not a number\n" +
		path + ":4: kill_rss: it must not be negative\n" +
		path + ":3: log_level: log level \"loud\" is not one of debug, info, warn, error\n" +
		"flag --log-format: \"xml\" is not one of text, json\n" +
		"see \"copilot-grpc help serve\"\n"
	if r.code != exitUsage || r.stderr != want {
		t.Errorf("code %d, printed\n%swant\n%s", r.code, r.stderr, want)
	}
	if r := run(t, nil, "", "serve", "--config", "/nowhere/config.yaml"); r.code != exitUsage ||
		!strings.Contains(r.stderr, "/nowhere/config.yaml") {
		t.Errorf("no file: %+v", r)
	}
}

// A file that changes is in force without a restart; a bad one is not, and is logged.
func TestReload(t *testing.T) {
	t.Parallel()
	path := configFile(t, "log_level: info\n")
	args := []string{"--config", path, "--listen", "unix:" + socket(t), "--data-dir", ""}
	p, _, _ := newProgram(nil, "")
	command, err := p.serverConfig(args)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	level := new(slog.LevelVar)
	logger, err := command.config.NewLogger(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), *command.config, app.WithLogger(logger), app.WithLevel(level))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, tc := range []struct {
		file  string
		level slog.Level
		said  string
	}{
		{"log_level: debug\n", slog.LevelDebug, "configuration reloaded"},
		{"log_level: warn\nlog_levle: debug\n", slog.LevelDebug, "reloading the configuration failed"},
		{"log_level: loud\n", slog.LevelDebug, "config.yaml:1"},
		{"log_level: info\nfsync: never\n", slog.LevelInfo, "fsync"},
	} {
		if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		p.reload(a, args, logger)
		if level.Level() != tc.level || !strings.Contains(out.String(), tc.said) {
			t.Errorf("%q: level %v, log %q", tc.file, level.Level(), out.String())
		}
	}
}

// A value of a secret is not in the error about it.
func TestWrongSecret(t *testing.T) {
	t.Parallel()
	r := run(t, nil, "", "serve", "--env", "hunter2")
	if r.code != exitUsage || !strings.Contains(r.stderr, "flag --env: entry 1 is not") || strings.Contains(r.stderr, "hunter2") {
		t.Errorf("%+v", r)
	}
}
