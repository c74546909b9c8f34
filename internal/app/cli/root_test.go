package cli

import (
	"flag"
	"os"
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
		"a choice":             {[]string{"run", "Hello", "--approve", ""}, "none\nreads\nall\nask\n:4"},
		"a format":             {[]string{"doctor", "-o", ""}, "text\njson\njsonl\n:4"},
		"a path":               {[]string{"serve", "--tls-cert", ""}, ":0"},
		"any text":             {[]string{"serve", "--node-name", ""}, ":4"},
		"a method": {[]string{"call", "copilot.bridge.v1.RuntimeService/P"},
			"copilot.bridge.v1.RuntimeService/Ping\n"},
		"methods that begin so":    {[]string{"call", "GetSe"}, "GetServerInfo\nGetSession\n:4"},
		"a flag with its value":    {[]string{"sessions", "list", "--lab"}, "--label\tonly sessions with this label, as KEY=VALUE;"},
		"a field":                  {[]string{"call", "Ping", `{"me`}, "{\"message\":\n:6"},
		"a field, as fish asks it": {[]string{"call", "Ping", `'{"me`}, "{\"message\":\n:4"},
	} {
		env := []string{"COPILOT_GRPC_TOKEN=a secret"}
		r := run(t, env, "", append([]string{"__complete"}, tc.args...)...)
		if r.code != exitOK || !strings.Contains(r.stdout, tc.want) || strings.Contains(r.stdout, "a secret") {
			t.Errorf("%s: %+v, want %q", name, r, tc.want)
		}
	}
}

// Each shell's script asks the program, and has the shell use it for the program's command lines.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string][]string{
		"bash":       {"complete -o default -F __start_copilot-grpc copilot-grpc"},
		"zsh":        {"#compdef copilot-grpc", "compdef _copilot-grpc copilot-grpc"},
		"fish":       {"complete -c copilot-grpc"},
		"powershell": {"Register-ArgumentCompleter -CommandName 'copilot-grpc'", `$RequestComp="$Program __complete $Arguments"`},
	} {
		r := run(t, nil, "", "completion", shell)
		for _, text := range append(want, "__complete") {
			if r.code != exitOK || !strings.Contains(r.stdout, text) {
				t.Errorf("%s: code %d, %q; want %q in %s", shell, r.code, r.stderr, text, r.stdout)
			}
		}
		if r := run(t, nil, "", "completion", shell, "--help"); r.code != exitOK || !strings.Contains(r.stdout, "copilot-grpc completion "+shell) {
			t.Errorf("help of %s: %+v", shell, r)
		}
	}
}

// A shell that does not exist is a mistake.
func TestCompletionMistakes(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]result{
		"completion zhs":          {exitUsage, "", `no command "zhs"; did you mean zsh?`},
		"completion csharp":       {exitUsage, "", `no command "csharp"` + "\n"},
		"completion":              {exitUsage, "", "want a shell: bash, fish, powershell, zsh\nsee \"copilot-grpc help completion\""},
		"completion zsh x":        {exitUsage, "", `unexpected argument "x"`},
		"completion zsh --short":  {exitUsage, "", "--short"},
		"completion --help":       {exitOK, "Usage:", ""},
		"help completion":         {exitOK, "Usage:", ""},
		"help completion fish":    {exitOK, "Usage:", ""},
		"__complete completion z": {exitOK, "zsh\t", ""},
	} {
		r := run(t, nil, "", strings.Fields(args)...)
		if r.code != want.code || !strings.Contains(r.stdout, want.stdout) || (r.stdout == "") != (want.stdout == "") ||
			!strings.Contains(r.stderr, want.stderr) {
			t.Errorf("%s: %+v, want %+v", args, r, want)
		}
	}
}

func TestUnknownCommandIsGuessed(t *testing.T) {
	t.Parallel()
	if r := run(t, nil, "", "sever"); r.code != exitUsage || !strings.Contains(r.stderr, "did you mean serve or server?") {
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

var update = flag.Bool("update", false, "write the golden files")

// The help of the commands that call a server is the committed one. It says nothing of the machine.
func TestHelpOfClientCommands(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	groups := []string{"run", "events", "sessions", "server", "top", "usage", "runtimes", "context", "call",
		"describe", "web"}
	for _, name := range groups {
		r := run(t, nil, "", "help", name)
		got.WriteString(r.stdout)
	}
	eachCommand(commands(), "", func(_ command, path string) {
		if name, sub, _ := strings.Cut(path, " "); sub != "" && slices.Contains(groups, name) {
			got.WriteString("\n" + run(t, nil, "", append([]string{"help"}, strings.Fields(path)...)...).stdout)
		}
	})
	const golden = "testdata/help.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the help differs from %s; write it with -update. It is\n%s", golden, got.String())
	}
}
