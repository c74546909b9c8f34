package cli

import (
	"slices"
	"strings"
	"testing"
)

// Shells are offered commands, flags and methods, and never the value of a secret.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a command":            {[]string{"ser"}, "serve\t"},
		"a flag":               {[]string{"serve", "--callback-t"}, "--callback-timeout\t"},
		"a flag of shim":       {[]string{"shim", "--counts-"}, "--counts-file\t"},
		"a command of a group": {[]string{"sessions", "exp"}, "export\t"},
		"a flag of a group":    {[]string{"sessions", "export", "--out"}, "--output\t"},
		"a method": {[]string{"call", "copilot.bridge.v1.RuntimeService/P"},
			"copilot.bridge.v1.RuntimeService/Ping\n"},
	} {
		env := []string{"COPILOT_GRPC_TOKEN=a secret"}
		r := run(t, env, "", append([]string{"__complete"}, tc.args...)...)
		if r.code != exitOK || !strings.Contains(r.stdout, tc.want) || strings.Contains(r.stdout, "a secret") {
			t.Errorf("%s: %+v, want %q", name, r, tc.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, nil, "", "completion", shell); r.code != exitOK || !strings.Contains(r.stdout, "copilot-grpc") {
			t.Errorf("%s: code %d, %q", shell, r.code, r.stderr)
		}
	}
}

func TestUnknownCommandIsGuessed(t *testing.T) {
	t.Parallel()
	if r := run(t, nil, "", "sever"); r.code != exitUsage || !strings.Contains(r.stderr, "did you mean serve?") {
		t.Errorf("%+v", r)
	}
	if r := run(t, nil, "", "help", "sever"); r.code != exitUsage || !strings.Contains(r.stderr, `no command "sever"`) {
		t.Errorf("help: %+v", r)
	}
}

// Flags with one dash are those with two, and their values stay as they are.
func TestOneDash(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"-token -x -tls":         "--token -x --tls",
		"-port=1 --host -a":      "--port=1 --host -a",
		"-h":                     "--help",
		"-stdio word -tls":       "--stdio word -tls",
		"-stdio -- -tls":         "--stdio -- -tls",
		"-unknown -stdio":        "--unknown --stdio",
		"--token":                "--token",
		"-counts -counts-file -": "--counts --counts-file -",
	} {
		if got := newShim(new(shimOptions)).long(strings.Fields(in)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
